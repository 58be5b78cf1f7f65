"""An inspected network as one self-contained page, and its figures as files: what was measured of it in, a folder out."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from mri_vit import style
from mri_vit.data import synthetic
from mri_vit.explain.inspection import activation, features, surfaces
from mri_vit.explain.inspection import figures as inspect_figures
from mri_vit.explain.inspection.learned import Learned
from mri_vit.explain.inspection.learned import figures as learned_figures
from mri_vit.explain.inspection.measures import NUMBERS_SHOWN, Numbers, chosen, millimetres, relative, step_rows
from mri_vit.explain.inspection.subject import Subject
from mri_vit.model.baselines import BASELINES, HYBRIDS
from mri_vit.model.network import count_parameters
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import read_json_or_empty
from mri_vit.run.ownership import refuse_foreign, refuse_links
from mri_vit.settings import sequences
from mri_vit.settings.demo import made_up
from mri_vit.settings.sections import Grid

RECORD, SCHEMA = "inspection.json", "mri-vit inspection 1"  # by which a folder is known as ours
HEADING = "Inside the Vision Transformer: what it learned to see, and where it looks"  # likewise, of versions before 0.5
HOW = {  # constants of which the page tells
    "steps": activation.STEPS,
    "roughness": features.ROUGHNESS,
    "jitter": features.JITTER,
    "patients": features.PATIENTS,
    "points": surfaces.POINTS,
    "reach": surfaces.REACH,
}
OTHER = "Inside the network: what it answers to, and how its loss lies"  # of a network without tokens


def write(subject: Subject, output: Path, numbers: Numbers | None, learned: Learned = Learned()) -> Path:  # noqa: B008 (frozen)
    """Write `index.html` and `figures/*.svg` and `*.png` into the folder `output`, and return the page's path.

    Parameters
    ----------
    subject : Subject
    output : Path
        Made if need be; files of an earlier inspection are written over.
    numbers : Numbers, optional
        What `measure` gives of a Vision Transformer; None of another network.
    learned : Learned
        What `learned.measure` gives of any network.

    Raises
    ------
    UsageError
        When `output` holds something else.
    IntegrityError
        When `output`, or its `figures`, is a link.
    """
    refuse(output)
    files, drawn = {}, {}
    for name, figure in figures(subject, numbers, learned).items():
        found = {kind: style.to_bytes(figure, kind) for kind in ("svg", "png")}
        files |= {f"figures/{name}.{kind}": content for kind, content in found.items()}
        drawn[name] = f"data:image/svg+xml;base64,{base64.b64encode(found['svg']).decode()}"
    page = output / "index.html"
    (output / "figures").mkdir(parents=True, exist_ok=True)
    # First, so that an inspection that was killed is known as ours.
    write_bytes(json.dumps({"schema": SCHEMA, "files": sorted(files)}, indent=1).encode(), output / RECORD)
    for name, content in files.items():
        write_bytes(content, output / name)
    write_bytes(_page(subject, numbers, learned, drawn).encode(), page)
    return page


def refuse(output: Path) -> None:
    """Raise UsageError when `output` holds something else than an inspection of ours, IntegrityError when it leads elsewhere."""
    refuse_links(output, ["figures"])
    page = output / "index.html"
    ours = read_json_or_empty(output / RECORD).get("schema") == SCHEMA or (
        page.is_file() and HEADING.encode() in page.read_bytes()
    )
    refuse_foreign(output, ours, "inspection")


def figures(subject: Subject, numbers: Numbers | None, learned: Learned) -> dict[str, Figure]:
    """Every figure by the name of its file."""
    of_tokens = of_vision_transformer(numbers, subject.study.grid) if numbers else {}
    return of_tokens | dict(learned_figures(learned, subject))


def of_vision_transformer(numbers: Numbers, grid: Grid) -> dict[str, Figure]:
    """Every figure of what only a Vision Transformer has."""
    drawn = {}
    where: Any = (numbers.tokens, numbers.place, numbers.scan, grid)
    for name, stage in numbers.stages.items():
        for scan, found in stage.components.items():
            drawn[f"filters_{scan}_{name}"] = inspect_figures.filter_components(found)
        drawn[f"position_{name}"] = inspect_figures.similarity_planes(stage.similarity, numbers.place, numbers.moved, grid)
        for what, row in (
            ("place_attention", chosen(stage.of_place, numbers)),
            ("cls_attention", chosen(stage.of_cls, numbers)),
            ("rollout", stage.rolled),
        ):
            drawn[f"{what}_{name}"] = inspect_figures.attention_planes(relative(row), *where)
    after = numbers.stages["after"]
    drawn["distance"] = inspect_figures.distances(numbers.stages["before"].distance_mm, after.distance_mm, numbers.uniform_mm)
    for what, rows in (("place_heads", after.of_place), ("cls_heads", after.of_cls)):
        drawn[what] = inspect_figures.heads_atlas(relative(rows), numbers.tokens, numbers.place, grid)
    return drawn


def _page(subject: Subject, numbers: Numbers | None, learned: Learned, drawn: Mapping[str, str]) -> str:
    environment = style.templates("mri_vit.explain.inspection")
    environment.filters.update(mm=millimetres, number=_number, vector=_vector, sequence=sequences.title)
    template = environment.get_template("inspect.html" if numbers else "network.html")
    return template.render(
        title=subject.title,
        heading=HEADING if numbers else OTHER,
        pictures=drawn,
        patient=subject.patients[0].id,
        made_up=bool(synthetic.note(subject.patients, subject.study)) or made_up(one.id for one in subject.patients),
        grid=subject.study.grid,
        model=subject.after.model,
        name=subject.name,
        label=(BASELINES | HYBRIDS)[subject.after.model.architecture].label if numbers is None else "",
        scans=subject.study.channels,
        learned=learned,
        batch_normalised=features.batch_normalised(subject.after),
        parameters=count_parameters(subject.after),
        how=HOW,
        **(_of_tokens(subject, numbers) if numbers else {}),
    )


def _of_tokens(subject: Subject, numbers: Numbers) -> dict[str, Any]:
    """What the page says of a Vision Transformer alone."""
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
        "slices": min(inspect_figures.SLICES, subject.study.grid.patch),
        "cls_share": {
            what: {name: float(chosen(getattr(stage, what), numbers)[0]) for name, stage in numbers.stages.items()}
            for what in ("of_place", "of_cls")
        },
    }


def _number(value: float | np.floating, digits: int = 2) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def _vector(values: np.ndarray, digits: int = 2) -> str:
    return "\u00a0 ".join(_number(float(value), digits) for value in values)
