"""The verb `inspect`: a run goes in, a self-contained page on what one of its networks has learned comes out, and its figures.

A Vision Transformer's numbers are measured at once; features and loss landscapes, which any network has, take many passes through
it: those that would take longer than a person waits are left out, and said to be.
"""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from mri_vit import style
from mri_vit.crossval.comparators import comparator_folder, networks
from mri_vit.crossval.folds import Split
from mri_vit.crossval.loop import fold_seed, parts
from mri_vit.crossval.work_units import starting_study
from mri_vit.data import run_cohort
from mri_vit.data.cohort import Patient
from mri_vit.explain.inspection import costs, drawings, learned
from mri_vit.explain.inspection.learned import Features, Landscape
from mri_vit.explain.inspection.request import Request, chosen_fold
from mri_vit.explain.inspection.vit_numbers import (
    NUMBERS_SHOWN,
    InspectedFold,
    VitNumbers,
    chosen,
    measure_vit,
    millimetres,
    relative,
    step_rows,
)
from mri_vit.model.baselines import BASELINES, HYBRIDS
from mri_vit.model.network import count_parameters
from mri_vit.predictors.network import Neural
from mri_vit.prepare import prepared
from mri_vit.run import atomic, files, integrity, resource
from mri_vit.run.atomic import refuse_foreign, refuse_links, write_bytes
from mri_vit.run.integrity import read_json_or_empty
from mri_vit.run.screen import WARNING, duration, say, waiting
from mri_vit.settings import recipe
from mri_vit.settings.file import all_from_demo
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Grid
from mri_vit.train.supervised import untrained

LANDSCAPES_BESIDE = 2  # comparators whose landscapes stand beside the study's own: each takes minutes, and --model shows any
ROOM = 1.25  # times the estimate that the minutes which are named leave room for: a pace is of one step
RECORD, SCHEMA = "inspection.json", "mri-vit inspection 1"  # by which a folder is known as ours
HEADING = "Inside the Vision Transformer: what it learned to see, and where it looks"  # likewise, of versions before 0.5
HEADING_WITHOUT_TOKENS = "Inside the network: what it responds to, and its loss landscape"  # of a network without tokens


@dataclass(frozen=True)
class Fold:
    """A fold of a run: its number, counted from 0, its seed, and the patients that its networks were trained on and tested on."""

    number: int
    seed: int
    train: Sequence[Patient]
    test: Sequence[Patient]

    def home(self, run: Path, name: str) -> Path:
        """The folder of one of the run's networks."""
        return files.fold_folder(comparator_folder(run, name), 0, self.number)


@dataclass(frozen=True, eq=False)
class LearnedResults:
    """Features, where they were not left out; landscapes, the inspected network's first, then those of others beside it."""

    features: Features | None = None
    landscapes: Sequence[Landscape] = ()


def run(
    study: Study,
    patients: Sequence[Patient],
    split: Split,
    folder: Path,
    request: Request,
    output: Path | None,
    console: Console,
) -> Path:
    """Write the page of a network of the run in `folder` into `output`, or where that is None into `inspect` beside the network's
    folds; print where it is and return its path.

    Raises
    ------
    UsageError
        The run has no such network, what is asked of it is not there, or `output` holds something else.
    IntegrityError
        The fold's weights or its test patients are not those that were written.
    """
    resource.keep_freed_memory()  # a step of a search takes and frees volumes of hundreds of megabytes
    began, number = time.monotonic(), chosen_fold(study, split, request)
    taking_part = networks(study)
    own = taking_part[request.model]
    output = output or comparator_folder(folder, request.model) / files.INSPECT
    refuse(output)
    fold = find_fold(study, patients, split, number)
    names = [request.model]
    if request.model == VIT and request.minutes > 0:
        names += [name for name in convolutional(study) if (fold.home(folder, name) / files.WEIGHTS).exists()][:LANDSCAPES_BESIDE]
    integrity.refuse_changed_run(folder, console, [fold.home(folder, name).relative_to(folder).as_posix() for name in names])
    of_landscape = fold.train if request.minutes > 0 else ()
    prepared.refuse_changed_patients(study.prepared, [*fold.test, *of_landscape], folder)
    subject, *beside = (of_fold(fold, taking_part[name], folder, request.patient, name) for name in names)
    numbers = None
    if own.model.architecture == "vit":
        numbers = measure_vit(subject, request.position_mm, request.layer, request.head)
    with atomic.held(output, ["figures"]):
        results = _learned(subject, beside, request.minutes, began, console)
        written = write_page(subject, output, numbers, results)
    say(console, f"inspection: {written}")
    return written


def find_fold(study: Study, patients: Sequence[Patient], split: Split, number: int) -> Fold:
    """A fold of the run, counted from 0."""
    seed = fold_seed(study.seed, 0, number)
    train, _, test = parts(patients, split[number], study, seed)
    return Fold(number, seed, train, test)


def of_fold(fold: Fold, study: Study, run: Path, patient: str | None, name: str = VIT) -> InspectedFold:
    """One of the fold's networks, whose own `study` this is, and its test patients, the one asked for first."""
    home = fold.home(run, name)
    after = Neural.fitted(study, home).network.eval()
    start = starting_study(study, comparator_folder(run, name), home)
    before = untrained(fold.train, start, fold.seed).to(next(after.parameters()).device).eval()
    shown = sorted(fold.test, key=lambda p: p.id != patient)
    title = f"{study.name}, fold {fold.number + 1}" + ("" if name == VIT else f", {name}")
    return InspectedFold(study, title, before, after, shown, fold.train, name)


def _learned(
    subject: InspectedFold, beside: Sequence[InspectedFold], minutes: float, began: float, console: Console
) -> LearnedResults:
    """Features and landscapes, of which those that fit into so many minutes since it `began`, by the monotonic clock; the others
    are named, with the time that they take.
    """
    if minutes <= 0:
        return LearnedResults()
    left_out, chosen = dict[str, float](), list[costs.Section]()
    with waiting(console, "how long features and loss landscapes take"):
        sections = list(costs.sections(subject, beside))
    left = 60 * minutes - (time.monotonic() - began)
    for section in sections:
        if section.seconds > left:
            left_out[section.name] = section.seconds
            continue
        chosen.append(section)
        left -= section.seconds
    if left_out:
        said = ", ".join(f"{name} (about {duration(one)})" for name, one in left_out.items())
        enough = math.ceil((60 * minutes - left + sum(left_out.values())) / 60 * ROOM)
        say(console, f"left out: {said}; --minutes {enough} shows all", WARNING)
    features, landscapes = None, []
    if chosen:
        about = duration(sum(section.seconds for section in chosen))
        with waiting(console, f"{' and '.join(section.name for section in chosen)}, about {about}"):
            for section in chosen:
                found = section.measure()
                if isinstance(found, Features):
                    features = found
                else:
                    landscapes.append(found)
    return LearnedResults(features, landscapes)


def convolutional(study: Study) -> list[str]:
    """The study's convolutional comparators: those whose last map Grad-CAM can read."""
    baselines = {name: BASELINES.get(of.model.architecture) for name, of in networks(study).items() if name != VIT}
    return [name for name, baseline in baselines.items() if baseline and baseline.layer and baseline.averaged]


def measure_learned(subject: InspectedFold, beside: Sequence[InspectedFold] = ()) -> LearnedResults:
    """All that is learned of the subject, and the landscapes of others `beside` it, however long it takes."""
    return LearnedResults(
        learned.measure_features(subject), tuple(learned.measure_landscape(network) for network in (subject, *beside))
    )


# --- the page ------------------------------------------------------------------------------------------------------------------


def write_page(
    subject: InspectedFold, output: Path, numbers: VitNumbers | None, results: LearnedResults = LearnedResults()
) -> Path:
    """Write `index.html` and `figures/*.svg` and `*.png` into the folder `output`, and return the page's path.

    Files of an earlier inspection are replaced. `numbers` are those of `measure_vit`, None of a network that is no Vision
    Transformer. Raises as `refuse`.
    """
    refuse(output)
    contents, drawn = {}, {}
    for name, figure in figures(subject, numbers, results).items():
        by_kind = {kind: style.to_bytes(figure, kind) for kind in ("svg", "png")}
        contents |= {f"figures/{name}.{kind}": content for kind, content in by_kind.items()}
        drawn[name] = f"data:image/svg+xml;base64,{base64.b64encode(by_kind['svg']).decode()}"
    page = output / "index.html"
    (output / "figures").mkdir(parents=True, exist_ok=True)
    # First, so that an inspection that was killed is known as ours.
    write_bytes(json.dumps({"schema": SCHEMA, "files": sorted(contents)}, indent=1).encode(), output / RECORD)
    for name, content in contents.items():
        write_bytes(content, output / name)
    write_bytes(_page(subject, numbers, results, drawn).encode(), page)
    return page


def refuse(output: Path) -> None:
    """Raise UsageError when `output` holds something else than an inspection of ours, IntegrityError when it leads elsewhere."""
    refuse_links(output, ["figures"])
    page = output / "index.html"
    ours = read_json_or_empty(output / RECORD).get("schema") == SCHEMA or (
        page.is_file() and HEADING.encode() in page.read_bytes()
    )
    refuse_foreign(output, ours, "inspection")


def figures(subject: InspectedFold, numbers: VitNumbers | None, results: LearnedResults) -> dict[str, Figure]:
    """Every figure by the name of its file."""
    drawn = of_vision_transformer(numbers, subject.study.grid) if numbers else {}
    if results.features:
        for feature in results.features.each:
            for stage, best in (("control", feature.control), ("learned", feature.learned)):
                drawn[f"feature_{feature.name}_{stage}"] = drawings.input_planes(
                    best.volume, results.features.brain, subject.study.channels, subject.study.grid
                )
    if results.landscapes:
        losses = [loss for surface in results.landscapes for loss in surface.loss.values()]
        span = drawings.colour_span(losses, [loss for surface in results.landscapes for loss in surface.untrained.values()])
    for surface in results.landscapes:
        panels = [
            (f"{surface.patients[part]} {part} patients", loss, surface.untrained[part]) for part, loss in surface.loss.items()
        ]
        drawn[f"landscape_{surface.name}"] = drawings.landscapes(panels, surface.steps, span)
    return drawn


def of_vision_transformer(numbers: VitNumbers, grid: Grid) -> dict[str, Figure]:
    """Every figure of what only a Vision Transformer has."""
    drawn = {}
    where: Any = (numbers.tokens, numbers.position, numbers.scan, grid)
    for name, stage in numbers.stages.items():
        for scan, components in stage.components.items():
            drawn[f"filters_{scan}_{name}"] = drawings.filter_components(components)
        drawn[f"position_{name}"] = drawings.similarity_planes(stage.similarity, numbers.position, numbers.moved, grid)
        for what, row in (
            ("place_attention", chosen(stage.of_place, numbers)),
            ("cls_attention", chosen(stage.of_cls, numbers)),
            ("rollout", stage.rolled),
        ):
            drawn[f"{what}_{name}"] = drawings.attention_planes(relative(row), *where)
    after = numbers.stages["after"]
    drawn["distance"] = drawings.distances(numbers.stages["before"].distance_mm, after.distance_mm, numbers.uniform_mm)
    for what, rows in (("place_heads", after.of_place), ("cls_heads", after.of_cls)):
        drawn[what] = drawings.heads_atlas(relative(rows), numbers.tokens, numbers.position, grid)
    return drawn


def _page(subject: InspectedFold, numbers: VitNumbers | None, results: LearnedResults, drawn: Mapping[str, str]) -> str:
    environment = style.templates("mri_vit.explain.inspection")
    environment.filters.update(mm=millimetres, number=_number, vector=_vector, sequence=recipe.title)
    template = environment.get_template("inspect.html" if numbers else "network.html")
    return template.render(
        title=subject.title,
        heading=HEADING if numbers else HEADING_WITHOUT_TOKENS,
        pictures=drawn,
        patient=subject.patients[0].id,
        made_up=bool(run_cohort.synthetic_note(subject.patients, subject.study))
        or all_from_demo(patient.id for patient in subject.patients),
        grid=subject.study.grid,
        model=subject.after.model,
        name=subject.name,
        label=(BASELINES | HYBRIDS)[subject.after.model.architecture].label if numbers is None else "",
        scans=subject.study.channels,
        learned=results,
        batch_normalised=learned.batch_normalised(subject.after),
        parameters=count_parameters(subject.after),
        constants=learned,
        **(_of_tokens(subject, numbers) if numbers else {}),
    )


def _of_tokens(subject: InspectedFold, numbers: VitNumbers) -> dict[str, Any]:
    """The template's variables of a Vision Transformer alone."""
    dim, depth, heads, _ = subject.after.model.shape
    return {
        "n": numbers,
        "dim": dim,
        "depth": depth,
        "heads": heads,
        "head_dim": dim // heads,
        "whose": f"head {numbers.head}" if numbers.head else f"the mean of its {heads} heads",
        "steps": step_rows(numbers, subject.study.grid),
        "numbers_shown": min(NUMBERS_SHOWN, dim // heads),
        "log_sum": float(numbers.steps.scaled[0] - np.log(numbers.steps.weights[0])),
        "reference": subject.study.prepare.reference,
        "steps_error": float(np.abs(numbers.steps.output - numbers.steps.model_output).max()),
        "slices": min(drawings.SLICES, subject.study.grid.patch),
        "cls_share": {
            what: {name: float(chosen(getattr(stage, what), numbers)[0]) for name, stage in numbers.stages.items()}
            for what in ("of_place", "of_cls")
        },
    }


def _number(value: float | np.floating, digits: int = 2) -> str:
    text = f"{value:.{digits}f}"
    return (text.removeprefix("-") if float(text) == 0 else text).replace("-", "−")  # no minus before a rounded zero


def _vector(values: np.ndarray, digits: int = 2) -> str:
    return "\u00a0 ".join(_number(float(value), digits) for value in values)
