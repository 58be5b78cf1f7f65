"""Recommended: an imported cohort's table goes in; the study that we recommend for it comes out, as a study file's text.

The settings are those of `configs/gbm.toml`, or of `configs/gbm_masks.toml` where most visits have a tumour mask: the package
ships both files, and nothing of them is repeated here.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path

from rich.console import Console

from mri_vit.data import cohort, sheet
from mri_vit.data.cohort import Patient
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.run.screen import say
from mri_vit.settings.endpoint import DEFAULT_ENDPOINTS, Endpoint
from mri_vit.settings.sequences import CHANNELS, REFERENCE

MARKERS = (*DEFAULT_ENDPOINTS, *(Endpoint(name=name, kind="binary") for name in ("idh", "idh1")))  # labels, studied or not
WITHOUT_MASKS, WITH_MASKS = "gbm.toml", "gbm_masks.toml"
FEWEST = 2  # patients of a class: one to learn from and one to test on, the least that folds can be made of
HEAD = """\
# The study that we recommend for the cohort in this folder, which `mri-vit import` wrote: the settings of configs/{recipe}.
# Look at provenance.csv for the origin of every label, at conflicts.csv and excluded.csv for what was not used, then:
#   mri-vit check study.toml      reads this file and the table, starts nothing
#   mri-vit run study.toml        prepares, trains, explains and reports
# All other keys have defaults; `mri-vit run --help` lists them. Scans with a skull need the extra "brain", or masks in the table.

"""
NONE = """
# No label can be studied yet, and `mri-vit check` says what is lacking. Add it to the table, or name other labels here.
"""
PLACEHOLDER = (Endpoint(name="mgmt", kind="binary"),)  # where the table has no label: check names the one column, and no more


def write_study(name: str, folder: Path, console: Console, known: Sequence[Endpoint] = MARKERS) -> None:
    """Write the study file beside a cohort's table where there is none: what somebody changed in one stays."""
    path = folder / files.STUDY
    if path.exists():
        say(console, f"{path} is there already and stays")
    else:
        write_bytes(study_file(name, folder / files.COHORT, known).encode(), path)
        say(console, f"study file {path}")


def study_file(name: str, table: Path, known: Sequence[Endpoint] = MARKERS) -> str:
    """The recommended study of a cohort table that lies beside the study file, with those endpoints that can be studied.

    Where none can, it has those of which the table has columns, so that `check` says what each lacks.

    `known` are the endpoints that are looked for. Raises UsageError where the table cannot be read.
    """
    header = sheet.columns(table)
    labelled = [endpoint for endpoint in known if set(endpoint.columns) <= set(header)]
    patients = cohort.read(table, tuple(labelled), needed=())
    masked = 2 * sum(patient.tumour_mask is not None for patient in patients) > len(patients)
    recipe = WITH_MASKS if masked else WITHOUT_MASKS
    settings = (resources.files("mri_vit.settings") / recipe).read_text(encoding="utf-8")
    there = [channel for channel in CHANNELS if any(patient.scans[channel] for patient in patients)]
    text = settings[re.search(r"(?m)^name = ", settings).start() :]  # type: ignore[union-attr] # every study has a name
    beside = {"name": name, "cohort": table.name, "output": "run"}
    for key, value in beside.items():
        text = re.sub(rf"(?m)^{key} = .*$", f"{key} = {json.dumps(value)}", text, count=1)
    text = re.sub(r'(?m)^prepared = ".*/(.*)"$', r'prepared = "\1"', text, count=1)
    if there and len(there) < len(CHANNELS):
        line = f"channels = {json.dumps(there)}  # of t1, t1ce, t2 and flair those that any patient has"
        text = text.replace("seed = 0\n", f"seed = 0\n{line}\n", 1)
    if there and REFERENCE not in there:
        line = f'reference = "{there[0]}"  # to which the others are aligned; it is T1ce where there is one'
        text = text.replace("[prepare]\n", f"[prepare]\n{line}\n", 1)
    first = cohort.first_visits(patients)
    reasons = {endpoint.name: _unfit(endpoint, first) for endpoint in labelled}
    studied = [endpoint for endpoint in labelled if not reasons[endpoint.name]]
    rarest = {endpoint.name: _rarest(endpoint, first) for endpoint in studied}
    usual = int(re.search(r"(?m)^folds = (\d+)", text)[1])  # type: ignore[index] # every study that we recommend names its folds
    if rarest and min(rarest.values()) < usual:
        scarce = min(rarest, key=rarest.__getitem__)
        line = f"folds = {rarest[scarce]}  # not {usual}: so many patients are in the rarer class of {scarce}, or died"
        text = re.sub(r"(?m)^folds = .*$", line, text, count=1)
    sections = map(_section, studied or labelled or PLACEHOLDER)
    return HEAD.format(recipe=recipe) + text + "".join((*_not_studied(reasons), NONE * (not studied), *sections))


def _unfit(endpoint: Endpoint, patients: Sequence[Patient]) -> str:
    """Why nothing can be learned of an endpoint; "" where it can. Of each patient the first visit counts, as in the folds."""
    count = Counter(patient.stratum(endpoint) for patient in patients if patient.knows(endpoint))
    if not count:
        return "no label is known"
    least, n = _rarest(endpoint, patients), count.total()
    if endpoint.kind == "survival":
        few = f"{least or 'none'} of {n} patients died, so that no survival is learned" + "; it takes two" * least
        return few if least < FEWEST else ""
    if not least:
        return f"all {n} labels are {next(iter(count))}, and a class is learned from both"
    return f"of {n} labels one alone is {min(count, key=count.__getitem__)}; it takes two of each class" if least < FEWEST else ""


def _rarest(endpoint: Endpoint, patients: Sequence[Patient]) -> int:
    """How many patients the rarer class has, or how many died: there are no more folds, as each has one of them."""
    count = Counter(patient.stratum(endpoint) for patient in patients if patient.knows(endpoint))
    return count["1"] if endpoint.kind == "survival" else min(count["0"], count["1"])


def _not_studied(reasons: Mapping[str, str]) -> Iterator[str]:
    for name, reason in reasons.items():
        if reason:
            yield f"\n# Not studied: {name}; {reason}.\n"


def _section(endpoint: Endpoint) -> str:
    settings = endpoint.model_dump(exclude_none=True)
    return "\n[[endpoints]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
