"""Differences: in what two runs differ beside their predictions: settings, software, patients, names, costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mri_vit.compared.document import Alone, Cost, Costs, Patients, Setting, Side
from mri_vit.compared.runs import Opened, Runs
from mri_vit.report.numbers import comparators
from mri_vit.report.schema.run import Environment
from mri_vit.report.words.notation import is_defined
from mri_vit.run.folder import FREE
from mri_vit.settings.schema import Study

OF_THE_MACHINE = ("cohort", "prepared", "output")  # paths, of which the patients' own section says what matters
SAID_ABOVE = "name"  # at the head of the page
FILES = ("model.weights", "qc.decisions", "prepare.brain_command", "prepare.tumour_command")  # of paths, the file's name alone


def sides(runs: Runs) -> tuple[Side, Side]:
    """What each run is, under a name of its own."""
    both = (runs.a, runs.b)
    studies = [opened.run.study.name for opened in both]
    folders = [opened.folder.resolve().name for opened in both]
    names = next((pair for pair in (studies, folders) if len(set(pair)) == 2), [f"{studies[0]} (A)", f"{studies[1]} (B)"])
    a, b = (_side(opened, name) for opened, name in zip(both, names, strict=True))
    return a, b


def settings(runs: Runs) -> tuple[Setting, ...]:
    """Every key of the study files that differs, defaults filled in; those first on which a prediction can depend."""
    a, b = (dict(_flat(_plain(opened.run.study))) for opened in (runs.a, runs.b))
    found = _differing(a, b)
    return tuple(sorted(found, key=lambda one: not one.decides))  # the order of the study file otherwise


def versions(runs: Runs) -> tuple[Setting, ...]:
    """Software, device and threads that differ."""
    a, b = (_made_with(opened) for opened in (runs.a, runs.b))
    return tuple(_differing(a, b))


def patients(runs: Runs) -> Patients:
    """Who is in both runs, and who in one alone."""
    a, b = runs.a.people, runs.b.people
    ours, theirs = runs.a.scans, runs.b.scans
    other = None
    if ours is not None and theirs is not None:
        other = tuple(sorted({scan[0] for scan in ours.keys() & theirs.keys() if ours[scan] != theirs[scan]}))
    return Patients(both=len(a & b), a_alone=tuple(sorted(a - b)), b_alone=tuple(sorted(b - a)), other_scans=other)


def endpoints_alone(runs: Runs) -> Alone:
    """Endpoints of one run."""
    a, b = ([endpoint.name for endpoint in opened.run.study.endpoints] for opened in (runs.a, runs.b))
    return _alone(a, b)


def models_alone(runs: Runs) -> Alone:
    """Models of one run."""
    return _alone(runs.a.models, runs.b.models)


def costs(runs: Runs) -> dict[str, Costs]:
    """What each model that both runs have costs, where both have written any of it down."""
    found = {}
    for model in (name for name in runs.a.models if name in runs.b.models):
        a, b = (Cost.model_validate(vars(comparators.costs(opened.run, model))) for opened in (runs.a, runs.b))
        if any(is_defined(getattr(a, name)) and is_defined(getattr(b, name)) for name in Cost.model_fields):
            found[model] = Costs(a=a, b=b)
    return found


def _side(opened: Opened, name: str) -> Side:
    run = opened.run
    environment = run.environment
    known = isinstance(environment, Environment)
    return Side(
        name=name,
        study=run.study.name,
        folder=opened.folder.resolve().name,
        design=run.design,
        patients=len(opened.people),
        folds=int(run.predictions.fold.nunique()),
        repeats=int(run.predictions.repeat.nunique()),
        folds_sha256=run.folds_sha256,
        device=environment.device if known else "",
        started=environment.started if known else "",
    )


def _plain(study: Study) -> dict[str, Any]:
    """The settings as JSON has them: the network's width and depth in numbers, paths as file names, lists of tables by name."""
    plain = study.model_dump(mode="json", exclude={*OF_THE_MACHINE, SAID_ABOVE})
    plain["model"] |= dict(zip(("dim", "depth", "heads", "mlp"), study.model.shape, strict=True))
    if study.pretrain.method == "none":  # what did not happen has no settings
        plain["pretrain"] = {"method": "none"}
    for table in ("endpoints", "comparators"):
        plain[table] = {one["name"]: {key: value for key, value in one.items() if key != "name"} for one in plain[table]}
    return plain


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and their values; an empty table, such as a comparator without keys of its own, is a value."""
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{key}.")
        else:
            yield key, _file_name(value) if key in FILES or key.endswith(".weights") else value


def _file_name(value: Any) -> Any:
    if isinstance(value, list):
        return [_file_name(one) for one in value]
    return Path(value).name if isinstance(value, str) else value


def _made_with(opened: Opened) -> dict[str, Any]:
    environment = opened.run.environment
    if not isinstance(environment, Environment):
        return {}
    facts = {"git commit": environment.git_commit, "device": environment.device, "threads": environment.threads}
    return {**environment.versions, **facts}


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Setting]:
    keys = [*a, *(key for key in b if key not in a)]
    return [Setting(key=key, a=a.get(key), b=b.get(key), decides=_decides(key)) for key in keys if a.get(key) != b.get(key)]


def _decides(key: str) -> bool:
    return key not in FREE and key.partition(".")[0] not in FREE


def _alone(a: list[str], b: list[str]) -> Alone:
    return Alone(a=tuple(name for name in a if name not in b), b=tuple(name for name in b if name not in a))
