"""Crate: a finished run in; its provenance out as an RO-Crate, whose files hold no id, label, path or row of a patient.

The crate has three small files (`study.toml`, `environment.json`, `results.json`) and `ro-crate-metadata.json`, which says what
software made which file of the run from what, when and on which device. The run's other files are named by size and SHA-256: who
has the run can check them, and others do not learn what is in them.

Conventions: RO-Crate 1.1 (w3id.org/ro/crate/1.1) in the profile Process Run Crate 0.5 (w3id.org/ro/wfrun/process/0.5).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

from rich.console import Console

from mri_vit.data import run_cohort
from mri_vit.finished.run_metrics import metrics_of_folder
from mri_vit.finished.trained_run import TrainedRun
from mri_vit.report.schema.metrics import Metrics
from mri_vit.run import atomic, files, integrity
from mri_vit.run.atomic import complete, write_bytes
from mri_vit.run.integrity import read_json, sha256
from mri_vit.run.screen import counted, say
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Study

WHAT = "RO-Crate"
METADATA = "ro-crate-metadata.json"  # the name that RO-Crate gives it
RESULTS = "results.json"
VERSION = "https://w3id.org/ro/crate/1.1"
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
CONTEXT = [f"{VERSION}/context", {"sha256": "https://w3id.org/ro/terms/workflow-run#sha256"}]  # which 1.1 lacks
TITLE = "mri_vit: deep learning on brain-tumour MRI that a reviewer believes"  # as in CITATION.cff
SPDX = "https://spdx.org/licenses/"
UNSTATED = "Not stated. Those who share this crate state the licence of its content."
# The files of a run that are named by their hash. Those from which an id could be guessed and confirmed by it, because they have
# few rows of known words, are not named: excluded.csv, qc.csv, qc_decisions.csv, notes.json.
BEFORE = {
    files.COHORT: "The frozen cohort table.",
    files.INPUTS: "SHA-256 of each patient's scan files.",
    files.VOXELS: "SHA-256 of the voxels of each patient's scans.",
}
PREPARED = {files.PREPARED: "SHA-256 of each prepared patient, for all of them."}
SPLIT = {files.FOLDS: "The patients of each fold."}
PREDICTED = {
    files.PREDICTIONS: "Out-of-fold predictions.",
    files.SURVIVAL: "Out-of-fold probabilities of survival.",
    files.SITE_PROBE: "What a probe says of the site.",
    files.NULLS: "What regressions reach on permuted labels.",
    files.SEEDS: "The scores of each seed's network.",
}
REPORTED = {
    f"{files.REPORT}/{files.METRICS}": "Every number of the report.",
    f"{files.REPORT}/{files.PAGE}": "The report.",
}
CLOCK_S = 60.0  # how far a file's time may be from the time in it; a copy made without times is off by hours and more
Entity = dict[str, Any]


def export(run: TrainedRun, output: Path, licence: str | None, console: Console) -> None:
    """Write the provenance of a finished run as an RO-Crate, whole or not at all.

    Parameters
    ----------
    run
        Its scans and prepared patients need not be there.
    output
        A new or an empty folder.
    licence
        The licence of the crate's content; None says that it is not stated.

    Raises
    ------
    UsageError
        `output` holds something.
    IntegrityError
        A table or network of the run is not the one that was written.
    """
    target = Path(os.path.abspath(output))
    _refuse_filled(target)
    integrity.refuse_changed_run(run.folder, console)
    found, _ = metrics_of_folder(run.folder)
    contents = {
        files.STUDY: study_file.dumps(study_file.portable(run.study)).encode(),
        files.ENVIRONMENT: (run.folder / files.ENVIRONMENT).read_bytes(),
        RESULTS: _json(results(found)),
    }
    graph = entities(run, found, contents, licence)
    with complete(target, _refuse_filled) as crate:
        for name, content in (contents | {METADATA: _json({"@context": CONTEXT, "@graph": graph})}).items():
            write_bytes(content, crate / name)
    named = sum("sha256" in entity for entity in graph) - len(contents)
    say(console, f"{output}: holds no data of a patient; {counted(named, 'file')} of the run named by SHA-256")


def _refuse_filled(output: Path) -> None:
    atomic.refuse_foreign(output, False, WHAT)


def _json(content: Any) -> bytes:
    return f"{json.dumps(content, indent=1, ensure_ascii=False)}\n".encode()


def results(found: Metrics) -> dict[str, Any]:
    """The numbers of a report that are of no single patient: counts, and by endpoint and model the judged figure and verdict."""
    return {
        "design": found.design,
        "patients": {key: getattr(found.cohort, key) for key in ("patients", "excluded", "predicted", "known")},
        "folds": found.folds,
        "repeats": found.repeats,
        "endpoints": {
            name: {
                "kind": endpoint.kind,
                "verdict": found.cards[name].verdict if name in found.cards else None,
                "models": {
                    model: {
                        "n": result.n,
                        "judged": result.judged and result.judged.model_dump(mode="json"),
                        "p_adjusted": result.chance_test and result.chance_test.p_adjusted,
                        "verdict": result.verdict,
                    }
                    for model, result in endpoint.models.items()
                },
            }
            for name, endpoint in found.endpoints.items()
        },
        "rules": found.rules,
    }


# --- the graph ----------------------------------------------------------------------------------------------------------------


def entities(run: TrainedRun, found: Metrics, contents: Mapping[str, bytes], licence: str | None) -> list[Entity]:
    """The entities of the crate, in one flat list: its description, its root, its files, the run's files, software, actions."""
    home = run.folder
    environment = read_json(home / files.ENVIRONMENT, ("versions", "git_commit", "device", "started"))
    software, maker = _software(environment["versions"], environment["git_commit"]), _software({"mri-vit": own("Version")}, None)
    before, prepared, split, predicted, reported = (
        list(_named(home, known)) for known in (BEFORE, PREPARED, SPLIT, PREDICTED, REPORTED)
    )
    networks = [_network(home, file) for file in weights(home)]
    maps = list(_folder(home, files.MAPS, "Maps of patients, as NIfTI files and pictures."))
    parts = [_file(name, content) for name, content in contents.items()]
    settings = [part for part in parts if part["@id"] == files.STUDY]
    kept = any(_keeps_time(network.parent) for network in weights(home))  # else the folder is a copy with times of its own
    ended = {
        "prepare": _written([home / files.EXCLUDED]),
        "train": _written([home / files.PREDICTIONS]),
        "explain": _written(sorted((home / files.MAPS).glob(f"*/{files.MAP}"))),
        "report": _written([home / files.REPORT / files.PAGE]),
    }
    device = f"On {environment['device']}, {counted(environment['threads'], 'thread')}."
    steps: dict[str, tuple[str, list[Entity], list[Entity]]] = {
        "prepare": ("Scans were aligned, stripped and standardised.", before + settings, prepared),
        "train": (
            f"Networks and controls were trained and predicted, fold by fold. {device}",
            prepared + settings,
            split + predicted,
        ),
        "explain": ("Maps were made.", networks + prepared, maps),
        "report": ("The predictions were measured and judged.", predicted, reported),
    }
    actions = [
        _action(verb, words, software[0], used, made, ended[verb] if kept else None)
        for verb, (words, used, made) in steps.items()
        if made
    ]
    actions += [
        _training(home, file, network, software[0], prepared + split)
        for file, network in zip(weights(home), networks, strict=True)
    ]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    actions.append(_action("export", "This crate was written.", maker[0], reported, parts, now))
    actions[0]["startTime"] = environment["started"]  # of the first verb, which every run begins with
    rights = _rights(licence)
    synthetic = run_cohort.synthetic_clause(home)
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"{run.study.name}: a run of mri_vit",
        "description": _described(run.study, found, synthetic),
        "datePublished": now,
        "license": _reference(rights),
        "conformsTo": {"@id": PROFILE},
        "hasPart": list(map(_reference, parts)),
        "mentions": list(map(_reference, actions)),
        "citation": _reference(software[0]),
    }
    head = {"@id": METADATA, "@type": "CreativeWork", "conformsTo": {"@id": VERSION}, "about": {"@id": "./"}}
    profile = {"@id": PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"}
    makers = {"@id": "#authors", "@type": "Organization", "name": own("Author")}
    terms = {"@id": f"{SPDX}{own('License-Expression')}", "@type": "CreativeWork", "name": own("License-Expression")}
    terms["description"] = "The licence of the software."
    named = [*before, *prepared, *split, *predicted, *networks, *maps, *reported]
    if maker[0]["@id"] == software[0]["@id"]:  # the run's, which knows its commit
        maker = []
    return [head, root, profile, *parts, rights, terms, makers, *software, *maker, *named, *actions]


def own(key: str) -> str:
    """A field of this package's metadata."""
    return str(metadata("mri-vit")[key])


def weights(home: Path) -> list[Path]:
    """The weights of every network of a run."""
    folds = sorted(fold for pattern in integrity.ALL_FOLDS for fold in home.glob(pattern))
    found = [[fold / files.WEIGHTS, *sorted(fold.glob(f"{files.SEED_GLOB}/{files.WEIGHTS}"))] for fold in folds]
    return [file for of in found for file in of if file.is_file()]


def _described(study: Study, found: Metrics, synthetic: str) -> str:
    endpoints = ", ".join(f"{name} ({endpoint.kind})" for name, endpoint in found.endpoints.items())
    patients = f"{found.cohort.predicted} patients{f' ({synthetic})' if synthetic else ''}"
    split = f"{counted(found.folds, 'fold')}, {counted(found.repeats, 'repeat')}"
    return (
        f"Cross-validated predictions of {endpoints} from brain-tumour MRI of {patients} in {split}. {RESULTS} has the figures"
        f" and verdicts, {files.STUDY} the settings without paths, {files.ENVIRONMENT} the versions. Files of the run that hold"
        " data of patients are not in this crate; they are named by their size and SHA-256. For research; not a medical device."
    )


def _rights(licence: str | None) -> Entity:
    words = {"name": licence, "description": "As those state who share this crate."} if licence else {"name": UNSTATED}
    return {"@id": "#licence", "@type": "CreativeWork", "description": UNSTATED, **words}


def _software(versions: Mapping[str, str], commit: str | None) -> list[Entity]:
    """mri_vit, and what it was run with."""
    packages = [
        {
            "@id": f"{address}#{version}",
            "@type": "SoftwareApplication",
            "name": name,
            "softwareVersion": version,
            "url": address,
        }
        for name, version in versions.items()
        if name != "mri-vit"
        for address in ["https://www.python.org/" if name == "python" else f"https://pypi.org/project/{name}/"]
    ]
    version = versions["mri-vit"]
    this = {
        "@id": f"#mri-vit-{version}",
        "@type": "SoftwareApplication",
        "name": "mri_vit",
        "description": own("Summary"),
        "softwareVersion": version,
        "license": {"@id": f"{SPDX}{own('License-Expression')}"},
        "author": {"@id": "#authors"},
        "creditText": f"{own('Author')}. {TITLE}. Version {version}. {own('License-Expression')}.",
        **({"identifier": f"git commit {commit}"} if commit else {}),
        **_linked(softwareRequirements=packages),
    }
    return [this, *packages]


def _file(name: str, content: bytes) -> Entity:
    """A file of the crate."""
    about = {
        files.STUDY: ("application/toml", "The settings of the run, each written out; names of folders are replaced."),
        files.ENVIRONMENT: ("application/json", "Versions, commit, device, threads, seed and start, as the run wrote them."),
        RESULTS: ("application/json", "Counts, judged figures with intervals, and verdicts, of no single patient."),
    }
    kind, words = about[name]
    digest = {"contentSize": str(len(content)), "sha256": hashlib.sha256(content).hexdigest()}
    return {"@id": name, "@type": "File", "name": name, "description": words, "encodingFormat": kind, **digest}


def _named(home: Path, known: Mapping[str, str]) -> Iterator[Entity]:
    """Those of these files of the run that are there: by name, size and hash, and not in the crate."""
    for name, words in known.items():
        if (file := home / name).is_file():
            yield _outside(name, f"{words} Not in this crate.", file.stat().st_size, sha256(file))


def _outside(name: str, words: str, size: int, digest: str) -> Entity:
    about = {"contentSize": str(size), "sha256": digest}
    return {"@id": f"#run/{name}", "@type": "CreativeWork", "name": name, "description": words, **about}


def _network(home: Path, file: Path) -> Entity:
    name = file.relative_to(home).as_posix()
    return _outside(name, "Weights of a fold's network. Not in this crate.", file.stat().st_size, sha256(file))


def _folder(home: Path, name: str, words: str) -> Iterator[Entity]:
    """A folder of the run whose file names hold ids: the number of files, their size, and one hash over theirs."""
    found = [file for file in (home / name).rglob("*") if file.is_file()]
    if found:
        lines = "\n".join(sorted(map(sha256, found)))
        how = f"{counted(len(found), 'file')}; sha256 is of their sorted hashes, a line each. Not in this crate."
        digest = hashlib.sha256(lines.encode()).hexdigest()
        yield _outside(f"{name}/", f"{words} {how}", sum(file.stat().st_size for file in found), digest)


def _action(verb: str, words: str, software: Entity, used: Iterable[Entity], made: Iterable[Entity], end: str | None) -> Entity:
    return {
        "@id": f"#{verb}",
        "@type": "CreateAction",
        "name": f"mri-vit {verb}",
        "description": words,
        "instrument": _reference(software),
        **_linked(object=used, result=made),
        **({"endTime": end} if end else {}),
    }


def _training(home: Path, file: Path, network: Entity, software: Entity, used: Sequence[Entity]) -> Entity:
    """The training of one network, on the device and at the time that its fold recorded."""
    fold = file.parent.parent if file.parent.match(files.SEED_GLOB) else file.parent
    made = read_json(fold / files.ENVIRONMENT, ("device", "threads", "started"))
    words = f"One network was trained on {made['device']}, {counted(made['threads'], 'thread')}."
    end = _written([file]) if _keeps_time(fold) else None
    action = _action(f"train/{file.parent.relative_to(home).as_posix()}", words, software, used, [network], end)
    return action | {"name": f"training of {network['name']}", "startTime": made["started"]}


def _keeps_time(fold: Path) -> bool:
    """Whether the files of a fold have the times at which they were written, not those of a copy: its record states one."""
    file = fold / files.ENVIRONMENT
    if not file.is_file():
        return False
    try:
        started = datetime.fromisoformat(read_json(file, ("started",))["started"]).timestamp()
    except (TypeError, ValueError):
        return False
    return abs(file.stat().st_mtime - started) <= CLOCK_S


def _written(found: Sequence[Path]) -> str | None:
    """When the last of these files was written."""
    times = [file.stat().st_mtime for file in found if file.is_file()]
    return datetime.fromtimestamp(max(times), UTC).isoformat(timespec="seconds") if times else None


def _linked(**links: Iterable[Entity]) -> dict[str, Any]:
    """Properties that refer to entities: to one alone without a list, as RO-Crate 1.1 wants it, to none not at all."""
    found = {name: list(map(_reference, of)) for name, of in links.items()}
    return {name: of[0] if len(of) == 1 else of for name, of in found.items() if of}


def _reference(entity: Entity) -> dict[str, str]:
    return {"@id": entity["@id"]}
