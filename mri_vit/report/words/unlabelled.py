"""Whether patients without a label differ from those on which a model was judged, in words."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from mri_vit.report.numbers import unlabelled
from mri_vit.report.numbers.unlabelled import MIN_GROUP, SCORE, TUMOUR, CharacteristicFigures, UnlabelledFigures
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.patients import Cell
from mri_vit.report.schema.unlabelled import Characteristic, Unlabelled
from mri_vit.report.words.notation import adjusted_p, counted, is_defined, number, percent, title


def of_run(run: Run, tables: Mapping[str, Mapping[str, pd.DataFrame]], whose: Mapping[str, str]) -> dict[str, Unlabelled]:
    """By endpoint whose label some patients lack, beside those on which the model of its card is judged."""
    found = {}
    for endpoint in run.study.endpoints:
        rows = tables.get(endpoint.name, {}).get(whose.get(endpoint.name, ""))
        if rows is not None and (figures := unlabelled.measure(run, endpoint, whose[endpoint.name], rows)):
            found[endpoint.name] = Unlabelled(
                model=figures.model,
                tested=figures.tested,
                untested=figures.untested,
                predicted=figures.predicted,
                characteristics=tuple(_part(one) for one in figures.characteristics),
                left_out=dict(figures.left_out),
                sentences=tuple(_sentences(figures)),
            )
    return found


def _part(one: CharacteristicFigures) -> Characteristic:
    return Characteristic.model_validate(
        {
            "name": one.row.column,
            "kind": one.row.kind,
            "levels": one.row.levels,
            "tested": one.tested,
            "untested": one.untested,
            "by_chance": one.by_chance,
            "p": one.p,
            "p_adjusted": one.p_adjusted,
            "differs": one.differs,
        }
    )


def _sentences(found: UnlabelledFigures) -> list[str]:
    without, judged = (
        f"{counted(found.untested, 'patient')} without a label",
        f"the {found.tested} on which {found.model} was judged",
    )
    if min(found.tested, found.untested) < MIN_GROUP:
        return [f"No comparison of the {without} with {judged}: each group needs {MIN_GROUP} patients."]
    if not found.characteristics:
        return [
            f"No comparison of the {without} with {judged}: no characteristic is known for {MIN_GROUP} patients of each group."
        ]
    if apart := [_apart(one) for one in found.characteristics if one.differs]:
        return [f"The {without} differ from {judged}: {'; '.join(apart)}.", f"The result of {found.model} may not hold for them."]
    return [
        f"No evidence that the {without} differ from {judged}: {counted(len(found.characteristics), 'characteristic')} compared."
    ]


def _apart(one: CharacteristicFigures) -> str:
    by = f"standardised difference {number(one.untested.difference, 2)}, {adjusted_p(one.p_adjusted)}"
    if one.row.kind == "number":
        higher = one.untested.mean > one.tested.mean
        how = ("older" if higher else "younger") if one.row.column == "age" else f"{'higher' if higher else 'lower'} {_name(one)}"
        return f"{how} (mean {number(one.untested.mean, 1)} against {number(one.tested.mean, 1)}; {by})"
    level, shares = _widest(one)
    what = f"{_name(one)} {level}".strip()
    return f"{what} in {percent(shares[1])} against {percent(shares[0])} ({by})"


def _widest(one: CharacteristicFigures) -> tuple[str, tuple[float, float]]:
    """The level whose share differs most, with both groups' shares."""
    pairs = [
        (level, (a / one.tested.known, b / one.untested.known))
        for level, a, b in zip(one.row.levels, one.tested.counts, one.untested.counts, strict=True)
    ]
    return max(pairs, key=lambda pair: abs(pair[1][0] - pair[1][1]))


def _name(one: CharacteristicFigures) -> str:
    return {SCORE: "predicted score", TUMOUR: "tumour volume"}.get(one.row.column, title(one.row.column))


def characteristic_name(one: Characteristic, model: str) -> str:
    """The first cell of a table's row."""
    return {SCORE: f"score of {model}"}.get(one.name, title(one.name))


def cell_in_words(one: Characteristic, cell: Cell) -> str:
    """Mean ± standard deviation of a number; of levels the shares of the first three."""
    if one.kind == "number":
        return f"{number(cell.mean, 2)} ± {number(cell.deviation, 2)}" if is_defined(cell.mean) else "–"
    shares = [f"{level} {percent(count / cell.known)}" for level, count in zip(one.levels, cell.counts, strict=True)]
    return ", ".join(shares[:3]) + (", …" if len(shares) > 3 else "")
