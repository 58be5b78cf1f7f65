"""A comparison: the study's network, its comparators and its controls on the same folds; one table of predictions out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from mri_vit.crossval import permutation_null
from mri_vit.crossval.comparators import comparator_folder, control_folder, networks, tested
from mri_vit.crossval.folds import Split
from mri_vit.crossval.loop import (
    MIN_SITE_PATIENTS,
    Builder,
    Tables,
    cross_validate,
    fold_seed,
    parts,
    permuted,
    site_probe,
    sites,
    stacked,
    suspected_leaks,
)
from mri_vit.crossval.work_units import Begin, Pretraining, pretrain, starting_study, weights_of_all_folds
from mri_vit.data import predictions, run_cohort, sheet
from mri_vit.data.cohort import Patient
from mri_vit.data.covariates import clinical_columns, clinical_table, remarks, withheld, withheld_in_words
from mri_vit.model.weights import image_exposed
from mri_vit.predictors import slices
from mri_vit.predictors.late_fusion import LateFusion, equally_weighted
from mri_vit.predictors.network import Neural
from mri_vit.predictors.patient_tables import described, intensity_table, radiomics_table, volume_table
from mri_vit.predictors.regressions import WIDE_CONTROLS, PrincipalRegressions, Tabular, control, kept_apart
from mri_vit.run import files, integrity
from mri_vit.run.atomic import write_bytes
from mri_vit.settings.recipe import (
    CLINICAL,
    CONTROLS,
    FUSED,
    INTENSITY,
    PERMUTED,
    RADIOMICS,
    RESHUFFLED,
    SHUFFLED,
    SITE,
    SLICES,
    VIT,
    VOLUME,
)
from mri_vit.settings.schema import Study

Notes = dict[str, str]  # what the report says beside the tables, by topic


def run(
    study: Study, patients: Sequence[Patient], splits: Sequence[Split], folder: Path, begin: Begin, warn: Callable[[str], None]
) -> None:
    """Write `predictions.csv`, `survival.csv`, `notes.json`, `nulls.csv` of the regressions, `site_probe.csv` where the
    table has sites, and `seeds.csv` where a fold has several networks into `folder`.

    The model's folds lie in `folder` itself, a comparator's in `rivals/<name>`, a control's in `controls/<name>`. `begin` is
    called with the title of each network's training and returns what is called after every epoch, `warn` with a sentence to be
    read while it runs. `notes.json` says what the controls rest on, why one was not made, which network was pretrained on
    patients that it is judged on, which pretraining collapsed, which late fusions have equal weights, and how many patients
    are synthetic.
    """
    odd = _of_clinical(study, patients)
    for remark in odd:
        warn(remark)
    encoders = pretrain(study, patients, splits, folder, begin)
    tables = _networks(study, patients, splits, folder, begin)
    notes = (
        {"transductive": _transductive(study, patients, folder)}
        | _collapsed(encoders)
        | run_cohort.synthetic_note(patients, study)
    )
    fused, of_fusion = _fused(study, patients, splits, folder)
    covariates, of_controls = _covariates(study, patients)
    notes |= {f"{CLINICAL}_remarks": "; ".join(odd)} if odd else {}
    tables += [*fused, *_regressions(covariates, study, patients, splits, folder)]
    notes |= of_fusion | of_controls
    _refitted(covariates, study, patients, splits[0], folder)
    tables += _permuted_labels(study, patients, splits, folder, begin, warn)
    notes |= _probed_sites(study, patients, splits, folder)
    _each_seed(study, splits, folder)
    write_bytes(json.dumps(notes, indent=1).encode(), folder / files.NOTES)
    _save(tables, folder)


def _of_clinical(study: Study, patients: Sequence[Patient]) -> list[str]:
    """What is odd in the clinical columns, where a model reads them. Raises UsageError as `clinical_columns` does."""
    if CLINICAL not in study.controls.models and not study.fused:
        return []
    clinical_columns(patients, study)  # refused here, before hours go into networks
    return remarks(patients, study)


def _networks(study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path, begin: Begin) -> list[Tables]:
    """The tables of the study's own network and of its comparators."""
    tables = []
    for name, of in networks(study).items():
        home = comparator_folder(run, name)
        build = _network(of, home, "" if name == VIT else f"{name} ", begin)
        tables.append(cross_validate(patients, splits, of, home, name, build))
    return tables


def _network(study: Study, home: Path, title: str, begin: Begin) -> Builder:
    """Builds the network of a fold, which starts from what was pretrained for the fold of that name in `home`."""

    def build(folder: Path, seed: int) -> Neural:
        return Neural(starting_study(study, home, home / folder.name), folder, seed, begin(f"{title}{folder.name}"))

    return build


def _transductive(study: Study, patients: Sequence[Patient], run: Path) -> str:
    """Which networks start from weights that are image-exposed to patients that they are then judged on."""
    labelled, found = tested(study.endpoints, patients), {}
    for name, of in networks(study).items():
        if weights := weights_of_all_folds(of, comparator_folder(run, name)):
            found[name] = labelled & set(image_exposed(weights))
    if study.fused and VIT in found:
        found[FUSED] = found[VIT]
    return ", ".join(f"{name} ({len(subjects)} patients)" for name, subjects in found.items() if subjects)


def _collapsed(encoders: Sequence[Pretraining]) -> Notes:
    found = [f"{one.title}: {one.collapsed}" for one in encoders if one.collapsed]
    return {"collapsed": "; ".join(found)} if found else {}


def _fused(study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path) -> tuple[list[Tables], Notes]:
    """The tables of the model vit+clinical, which takes each fold's network as it is; and a note."""
    if not study.fused:
        return [], {}
    columns = clinical_columns(patients, study)
    if not columns:
        return [], {FUSED: "not made: the cohort table has no clinical column that varies"}
    covariates, home, own = clinical_table(patients, columns), comparator_folder(run, FUSED), networks(study)[VIT]

    def build(folder: Path, seed: int) -> LateFusion:
        return LateFusion(Neural.fitted(own, run / folder.name), covariates, folder)

    tables = cross_validate(patients, splits, own, home, FUSED, build)
    folders = [files.fold_folder(home, repeat, fold) for repeat, split in enumerate(splits) for fold in range(len(split))]
    equal = equally_weighted(folders)
    return [tables], {FUSED: equal} if equal else {}


def _covariates(study: Study, patients: Sequence[Patient]) -> tuple[dict[str, pd.DataFrame], Notes]:
    """What each control that is a regression reads, by its name; and notes on what that is, or why there is none."""
    asked, notes, tables = study.controls.models, {}, {}
    if CLINICAL in asked:
        columns = clinical_columns(patients, study)
        tables[CLINICAL] = clinical_table(patients, columns)
        notes |= {} if columns else {CLINICAL: "the cohort table has no clinical column that varies"}
        notes |= {f"{CLINICAL}_withheld": words} if (words := withheld_in_words(withheld(columns, study))) else {}
    if VOLUME in asked:
        tables[VOLUME] = volume_table(patients, study)
    notes |= {f"{name}_columns": ", ".join(table) for name, table in tables.items()}
    if INTENSITY in asked:
        tables[INTENSITY] = intensity_table(patients, study)
        notes[f"{INTENSITY}_columns"] = described(tables[INTENSITY], study.channels)
    if SLICES in asked and study.controls.slices:
        tables[SLICES] = slices.slices_table(patients, study)
        notes[f"{SLICES}_columns"] = slices.described(tables[SLICES], study)
    elif SLICES in asked and asked != CONTROLS:
        notes[SLICES] = "no file of a 2D Vision Transformer is given (controls.slices)"
    if study.controls.radiomics:
        tables[RADIOMICS] = radiomics_table(patients, study)
        if len(tables[RADIOMICS].columns):
            notes[f"{RADIOMICS}_columns"] = f"{len(tables[RADIOMICS].columns)} features of {', '.join(study.channels)}"
        else:
            notes[RADIOMICS] = "no patient has a tumour_mask"
    if SITE in asked:
        if study.train.leave_out == "site":
            notes[SITE] = "every test patient is of a site that no training patient is of"
        elif of := sites(patients):
            tables[SITE] = pd.DataFrame(
                {"site": [of.get(p.id) for p in patients]}, pd.Index([p.id for p in patients]), dtype=object
            )
        elif asked != CONTROLS:  # by default it is made where it can be, and a table without sites lacks nothing
            notes[SITE] = f"the cohort table has no two sites of {MIN_SITE_PATIENTS} patients or more"
    return {name: table for name, table in tables.items() if len(table.columns)}, notes


def _regressions(
    covariates: Mapping[str, pd.DataFrame], study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path
) -> list[Tables]:
    """The tables of the controls that are regressions."""
    return [
        cross_validate(patients, splits, study, run / files.CONTROLS / name, name, partial(_control, name, table, study))
        for name, table in covariates.items()
    ]


def _control(name: str, covariates: pd.DataFrame, study: Study, folder: Path, seed: int) -> Tabular | PrincipalRegressions:
    return control(name, covariates, study)


def _refitted(covariates: Mapping[str, pd.DataFrame], study: Study, patients: Sequence[Patient], split: Split, run: Path) -> None:
    """`nulls.csv`: what the regressions reach where labels are permuted; of those on components, whose number the
    validation patients choose, a test without refits is left.
    """
    covariates = {name: table for name, table in covariates.items() if name not in WIDE_CONTROLS}
    if covariates and not (run / files.NULLS).exists():
        results = len(covariates) * len(study.endpoints)  # the controls are tested together, apart from the candidates
        apart = {name: kept_apart(name, table, study) for name, table in covariates.items()}
        predictions.save(permutation_null.table(covariates, study, patients, split, results, apart), run / files.NULLS)


def _permuted_labels(
    study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path, begin: Begin, warn: Callable[[str], None]
) -> list[Tables]:
    """The tables of the model trained on permuted labels, in the first repeat alone: it costs as much as the model itself.

    Where it looks as if it had learned something, a second model on a fresh permutation says whether that was chance. Both start
    from the model's own encoders, for pretraining sees no label.
    """
    if SHUFFLED not in study.controls.models:
        return []

    def trained(name: str) -> Tables:
        build = _network(networks(study)[VIT], run, f"{name} ", begin)
        others = permuted(patients, splits[0], study.seed, PERMUTED.index(name))
        return cross_validate(others, splits[:1], study, control_folder(run, name), name, build)

    first = trained(SHUFFLED)
    suspects = suspected_leaks(first[0], study.endpoints)
    if not suspects:
        return [first]
    warn(f"suspicious: the control on permuted labels predicts {', '.join(suspects)}; a fresh permutation is being made")
    return [first, trained(RESHUFFLED)]


def _probed_sites(study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path) -> Notes:
    """`site_probe.csv`: the site that each test patient's CLS vector is taken for, by a probe of the other patients'."""
    if study.train.leave_out == "site":
        return {"site_probe": "not asked: every test patient is of a site that no training patient is of"}
    if not sites(patients) or (run / files.SITE_PROBE).exists():
        return {}
    rows = []
    for repeat, split in enumerate(splits):
        for fold, ids in enumerate(split):
            fitted = Neural.fitted(study, files.fold_folder(run, repeat, fold))
            train, val, test = parts(patients, ids, study, fold_seed(study.seed, repeat, fold))
            rows.append(site_probe(fitted.represent, [*train, *val], test).assign(repeat=repeat, fold=fold))
    probed = pd.concat(rows)[files.SITE_PROBE_COLUMNS].map(sheet.harmless)
    write_bytes(probed.to_csv(index=False, lineterminator="\n").encode(), run / files.SITE_PROBE)
    return {}


def _each_seed(study: Study, splits: Sequence[Split], run: Path) -> None:
    """`seeds.csv`: what the folds of the networks that have several seeds wrote down of each."""
    several = [comparator_folder(run, name) for name, of in networks(study).items() if of.train.seeds > 1]
    folders = [
        files.fold_folder(home, repeat, fold)
        for home in several
        for repeat, split in enumerate(splits)
        for fold in range(len(split))
    ]
    if folders:
        predictions.save(pd.concat([predictions.load_seeds(folder / files.SEEDS) for folder in folders]), run / files.SEEDS)


def _save(tables: Sequence[Tables], run: Path) -> None:
    """`predictions.csv` last: where it is, the comparison has ended."""
    score, survival = (stacked(parts) for parts in zip(*tables, strict=True))
    last = {files.SURVIVAL: predictions.dumps(survival), files.PREDICTIONS: predictions.dumps(score)}
    integrity.write_hashed(run, [files.NOTES, files.SITE_PROBE, files.NULLS, files.SEEDS], last)
