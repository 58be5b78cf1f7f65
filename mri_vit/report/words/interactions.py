"""Whether a model works alike in every subgroup, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import pandas as pd

from mri_vit.report.numbers import interactions
from mri_vit.report.numbers.interactions import InteractionFigures, TestFigures
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.interactions import Interactions, InteractionTest
from mri_vit.report.schema.measured import ALPHA
from mri_vit.report.words.notation import SYMBOLS, adjusted_p, capitalize_first, counted, listed
from mri_vit.report.words.of_kind import of

NAMES = {  # of what is measured of subgroups beside the judged figure
    "observed_to_expected": "calibration (O:E)",
    "slope": "calibration slope",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "mean_error": "mean error",
}


def of_run(run: Run, tables: Mapping[str, Mapping[str, pd.DataFrame]], whose: Mapping[str, str]) -> dict[str, Interactions]:
    """By endpoint with a subgroup's column, of the model of its card."""
    kinds = {endpoint.name: endpoint.kind for endpoint in run.study.endpoints}
    return {
        name: Interactions(
            model=found.model,
            tests=tuple(InteractionTest.model_validate(asdict(test)) for test in found.tests),
            not_tested=(untested := _not_tested(found, symbol)),
            sentences=tuple(_sentences(found, untested, symbol)),
        )
        for name, found in interactions.measure(run, tables, whose).items()
        for symbol in (SYMBOLS[of(kinds[name]).labels.measure],)
    }


def measure_name(measure: str, symbol: str) -> str:
    """What a test or a column of the table is of; `symbol` is of the judged figure."""
    return NAMES.get(measure, symbol)


def _not_tested(found: InteractionFigures, symbol: str) -> dict[str, str]:
    return {
        f"{measure_name(measure, symbol)} by {column}" if measure else column: why
        for (column, measure), why in found.not_tested.items()
    }


def _sentences(found: InteractionFigures, not_tested: Mapping[str, str], symbol: str) -> list[str]:
    apart = [test for test in found.tests if test.p_adjusted <= ALPHA]
    text = [_apart(found.model, test, symbol) for test in apart]
    if found.tests and not apart:
        measures = listed([measure_name(name, symbol) for name in dict.fromkeys(test.measure for test in found.tests)])
        columns = listed(list(dict.fromkeys(test.column for test in found.tests)))
        least = adjusted_p(min(test.p_adjusted for test in found.tests))
        text.append(
            f"No evidence that {measures} of {found.model} differ between the groups by {columns} "
            f"({counted(len(found.tests), 'test')}, least {least}); that does not show that the model is fair."
        )
    alone = {test.column for test in apart if test.measure == "observed_to_expected"}
    alone -= {test.column for test in apart if test.measure != "observed_to_expected"}
    if alone:
        text.append(
            f"By {listed(sorted(alone))} O:E alone differs: the outcome is more common in one group than its probabilities say, "
            "while the model may separate patients equally well in all."
        )
    text += [
        f"{capitalize_first(measure_name(test.measure, symbol))} is compared between {test.column} {listed(list(test.levels))} "
        "alone; of the other groups it is not known."
        for test in found.tests
        if set(test.levels) < set(found.large[test.column])
    ]
    return text + [f"{capitalize_first(what)} is not tested: {why}." for what, why in not_tested.items()]


def _apart(model: str, test: TestFigures, symbol: str) -> str:
    name = measure_name(test.measure, symbol)
    return f"{capitalize_first(name)} of {model} differs between the groups by {test.column} ({adjusted_p(test.p_adjusted)})."


def columns_of(tests: Sequence[InteractionTest], measured: Sequence[str]) -> list[str]:
    """What the table of an endpoint's subgroups has a column for, beside the judged figure."""
    return [name for name in NAMES if name in {*measured, *(test.measure for test in tests)}]
