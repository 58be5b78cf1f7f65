"""The run and its patients in words: what texts ask of a run, Table 1, what was predicted of each patient, and the worst."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mri_vit.crossval import power
from mri_vit.kinds.kind import part, with_article
from mri_vit.report.schema.competing import NEITHER
from mri_vit.report.schema.kinds import Result
from mri_vit.report.schema.measured import Worst
from mri_vit.report.schema.metrics import Metrics, Settings
from mri_vit.report.schema.parts import OWN, TABLES, Design, Kind
from mri_vit.report.schema.patients import Association, Cell, Patient, PatientResult, Row, Split, Table1
from mri_vit.report.words.instability import answer_in_words, range_in_words
from mri_vit.report.words.notation import adjusted_p, escape, in_words, is_defined, listed, number, symbol, title
from mri_vit.settings import recipe
from mri_vit.settings.recipe import NOT_COMPARED, is_compared

COMPARED_SPLITS = ("fold", "left out", "development")  # splits whose difference counts; of the excluded little is known
HEADS = {"all": "All", "excluded": "Not predicted", "development": "Development cohort"}
DIFFERENCES: dict[str, str] = {
    "fold": "The last column is the largest standardised difference between a fold and the other folds",
    "left out": "The last column is the largest standardised difference between the patients of one value and all others",
    "development": "The last column is the standardised difference between the two cohorts",
}
TRAITS = {
    "finding": "findings of quality control",
    "site": "site",
    "brain_ml": "brain volume",
    "tumour_share": "the tumour's share of the brain",
}
BY_CHANCE = "There is no evidence that the model beats chance, so the worst cases are mostly random. "


@dataclass(frozen=True)
class Facts:
    """What `metrics.json` does not hold, all of it optional.

    `brains` are the patients by the way their brain was found (mask, none or deepbet); `own_words` the author's own by the name
    of a gap (ethics, scanners, …).
    """

    brains: Mapping[str, int] = field(default_factory=dict)
    own_words: Mapping[str, str] = field(default_factory=dict)

    def gap(self, name: str, wanted: str) -> str:
        """The author's own words for something that a run cannot know, or a marked gap that says what is wanted."""
        return escape(self.own_words[name]) if self.own_words.get(name) else f"**[author: {wanted}]**"


def every_sequence(channels: Sequence[str]) -> str:
    """All four sequences; both sequences; the sequence T1."""
    if len(channels) == 1:
        return f"the sequence {recipe.title(channels[0])}"
    return "both sequences" if len(channels) == 2 else f"all {in_words(len(channels))} sequences"


def settings(metrics: Metrics) -> Settings | None:
    """The study's settings; None for a table from elsewhere, whose settings say nothing of its making."""
    return metrics.settings if isinstance(metrics.settings, Settings) and metrics.design not in TABLES else None


def trained(metrics: Metrics) -> Settings | None:
    """Likewise, but None too for an external evaluation, which trains nothing."""
    return settings(metrics) if metrics.design == "cross-validation" else None


def results(metrics: Metrics) -> Iterator[tuple[str, str, Result]]:
    """(endpoint, model, result) of every result."""
    for name, endpoint in metrics.endpoints.items():
        for model, result in endpoint.models.items():
            yield name, model, result


def controls(metrics: Metrics) -> list[str]:
    """The controls of the run, or of the evaluated run, that have results."""
    ran = {model for _, model, _ in results(metrics)} if settings(metrics) else set()
    return [name for name in NOT_COMPARED if name in ran]


def kinds(metrics: Metrics) -> list[str]:
    """Of the endpoints, each once."""
    return sorted({endpoint.kind for endpoint in metrics.endpoints.values()})


def labels_alone(metrics: Metrics) -> str:
    """ "'s labels" where somebody's scans were seen in pretraining, so that a claim says no more than is true; else ""."""
    return "'s labels" if metrics.transductive else ""


def could_show(result: Result) -> str:
    """What the patients could have shown at all, whatever their scores, as is said before a run; "" where there is no pair."""
    test = result.chance_test
    if not is_defined(test.least):
        return ""
    least = test.least_adjusted if is_defined(test.least_adjusted) else test.least
    found = f"; {power.found_sentence(symbol(result), test.found_80, test.found_90)}" if is_defined(test.found_80) else ""
    return power.power_sentence(symbol(result), least) + found


def sample_sizes(result: Result) -> str:
    """Behind `could_show`, how many patients a regression and its validation need; "" with one class."""
    of_kind = part(result.kind_of, "labels")
    share, expected = getattr(result, "positive", getattr(result, "events", result.n)) / result.n, of_kind.expected
    if not 0 < share < 1:
        return ""
    found = of_kind.minima(share, expected, power.PARAMETERS, result.n * result.chance_test.error**2)
    if not found:
        return ""
    here, elsewhere = found
    return (
        f"; for {with_article(symbol(result))} of {expected:.2f} a regression of {power.PARAMETERS} "
        f"parameters needs {here.patients:,.0f} patients, its validation elsewhere {elsewhere.patients:,.0f} (Riley et al.)"
    )


def visible(metrics: Metrics, models: Mapping[str, Result]) -> dict[str, Result]:
    """Of these models, the compared that are shown (see `numbers.results`) and the controls."""
    return {model: result for model, result in models.items() if model in metrics.shown or not is_compared(model)}


def chief(metrics: Metrics) -> tuple[str, ...]:
    """Models that are reported at length: the study's own, or every model shown where there is none of its own."""
    return (OWN,) if OWN in metrics.shown else metrics.shown


def absence(known: int, design: str) -> str:
    """Why an endpoint that was asked for, with so many labels known in the table, has no result."""
    if known:
        return "labels are known, but for no patient with a prediction"
    # Only cross-validation trains on the labels that are shown.
    return f"no patient has a label, so it is not {'trained' if design == 'cross-validation' else 'judged'}"


# Patients.


class Table1Line(NamedTuple):
    """One line: what it is of, whether it stands below another, a cell per split, and the largest difference."""

    head: str
    below: bool
    cells: tuple[str, ...]
    difference: str


def table1_heads(table: Table1, design: Design) -> list[tuple[str, int]]:
    """Each column's head and number of patients."""
    everybody = "Evaluated cohort" if design == "external" else HEADS["all"]
    names = {"all": everybody, "excluded": HEADS["excluded"], "development": HEADS["development"]}
    return [(names.get(split.kind, split.name[:1].upper() + split.name[1:]), split.n) for split in table.splits]


def table1_lines(rows: Iterable[Row], splits: tuple[Split, ...]) -> list[Table1Line]:
    """The lines of these rows of a table with these splits, each with one for its missing values where there are any."""
    return [line for row in rows for line in _row_lines(row, splits)]


def table1_compares(table: Table1) -> bool:
    """Whether any of its columns is compared with other patients, so that there is a difference to show."""
    return any(split.kind in COMPARED_SPLITS for split in table.splits)


def table1_caption(table: Table1) -> str:
    """What the columns of differences say, and why there is no p."""
    compared = [split for split in table.splits if split.kind in COMPARED_SPLITS]
    caption = "Medians with quartiles in brackets; counts with their share of the patients whose value is known."
    if compared:
        caption += f" {DIFFERENCES[compared[0].kind]} (Austin 2009)"
        if compared[0].kind == "fold":
            chance = number(max(split.by_chance for split in compared), 2)
            caption += (
                f"; such a difference between random groups of these sizes is {chance} (root mean square) for a number or "
                "two levels, and larger for more levels. No p-values are given: folds are random and stratified by label, so "
                "their differences arise by chance, and STROBE advises against such tests"
            )
        caption += "."
    if table.left_out:
        caption += f" {table.left_out} further columns of the cohort table are not shown here."
    return caption


def _row_lines(row: Row, splits: tuple[Split, ...]) -> list[Table1Line]:
    differences = [
        cell.difference
        for cell, split in zip(row.cells, splits, strict=True)
        if split.kind in COMPARED_SPLITS and is_defined(cell.difference)
    ]
    largest = number(max(differences), 2) if differences else "–"
    if row.kind == "number":
        lines = [Table1Line(f"{row.column}, median", False, tuple(map(_quartiles, row.cells)), largest)]
    elif row.kind == "follow-up":
        lines = [Table1Line(f"{title(row.column)}: median follow-up in days", False, tuple(map(_quartiles, row.cells)), "")]
    elif row.kind == "label":
        lines = [
            Table1Line(f"{title(row.column)}: known", False, tuple(str(cell.known) for cell in row.cells), ""),
            Table1Line(row.levels[0], True, tuple(_share(cell, 0) for cell in row.cells), largest),
        ]
    else:
        lines = [Table1Line(row.column, False, ("",) * len(row.cells), largest)]
        lines += [
            Table1Line(_level(row, place), True, tuple(_share(cell, place) for cell in row.cells), "")
            for place in range(len(row.levels))
        ]
    if row.kind in ("number", "words") and any(cell.missing for cell in row.cells):
        lines.append(Table1Line("missing", True, tuple(str(cell.missing) for cell in row.cells), ""))
    return lines


def _level(row: Row, place: int) -> str:
    lumped = row.lumped and place == len(row.levels) - 1
    return f"{row.levels[place]}: {row.lumped}" if lumped else row.levels[place]


def _quartiles(cell: Cell) -> str:
    if not is_defined(cell.median):
        return "not reached" if cell.known else "–"
    low, high = (_plain(value) if is_defined(value) else "–" for value in (cell.low, cell.high))
    return f"{_plain(cell.median)} [{low}, {high}]"


def _plain(value: float) -> str:
    """Whole numbers as such; others with three digits that count, or one decimal from 100 on."""
    if float(value).is_integer() or abs(value) >= 1000:
        return number(value, 0)
    return f"{value:.3g}" if abs(value) < 100 else number(value, 1)


def _share(cell: Cell, place: int) -> str:
    """12 (38 %)."""
    if not cell.known:
        return "–"
    return f"{cell.counts[place]} ({100 * cell.counts[place] / cell.known:.0f} %)" if cell.counts else "–"


@dataclass(frozen=True)
class PatientLine:
    """One endpoint of a patient."""

    endpoint: str
    title: str
    kind: Kind  # of the verdict on the model
    verdict: str
    truth: str
    score: str
    rank: str
    error: str
    retrained: str
    answer: str


def patient_lines(metrics: Metrics, person: Patient) -> list[PatientLine]:
    """A line per endpoint that a compared model was judged on, in the report's order."""
    return [
        PatientLine(
            endpoint=name,
            title=title(name),
            kind=metrics.endpoints[name].models[card.model].verdict_kind,
            verdict=card.verdict,
            truth=label_in_words(result),
            score=result.predicted or number(result.score),
            rank=rank_in_words(result),
            error=error_in_words(result),
            retrained=_retrained(metrics, name, card.model, result),
            answer=answer_in_words(result.answer) if result.answer else "–",
        )
        for name, card in metrics.cards.items()
        if (result := person.endpoints.get(name))
    ]


def _retrained(metrics: Metrics, endpoint: str, model: str, result: PatientResult) -> str:
    found = metrics.instability.get(endpoint, {}).get(model)
    return range_in_words(result.retrained, found[0]) if found and result.retrained else "–"


def label_in_words(result: PatientResult) -> str:
    """The label: positive, negative, a class or number, or how long the patient lived or was followed."""
    if result.truth is None:
        return result.label or "not known"
    if not is_defined(result.time_days):
        return "positive" if result.truth else "negative"
    if result.label:  # of an endpoint with a competing event
        return f"{result.label} after {number(result.time_days, 0)} days"
    return f"{'died after' if result.truth else 'alive after'} {number(result.time_days, 0)} days"


def short_label(result: PatientResult) -> str:
    """The label in a narrow column: 1, 0, or days with a + for who was alive then, “other” for who had a competing event; nothing
    where it is not known.
    """
    if result.truth is None:
        return result.label or ""
    if result.label and not result.truth and result.label != NEITHER:
        return f"{result.time_days:.0f} other"
    return f"{result.time_days:.0f}{'' if result.truth else '+'}" if is_defined(result.time_days) else str(int(result.truth))


def rank_in_words(result: PatientResult) -> str:
    """Where the score stands among those of the same fold."""
    return f"higher than {100 * result.rank:.0f} % of the fold" if is_defined(result.rank) else "–"


def error_in_words(result: PatientResult) -> str:
    """How wrong the score is beside the others'."""
    if not is_defined(result.error):
        return "–"
    return f"Ranked wrongly in {result.wrong:g} of {result.pairs} comparisons with other patients"


def failures_sentence(failures: Worst, verdict: Kind) -> str:
    """How the worst differ from the others, and where there is no evidence of it; `verdict` is that on the model."""
    head = "" if verdict == "better" else BY_CHANCE
    if not failures.associations:
        return f"{head}These patients have no quality finding, site or volume to compare."
    worst, others = len(failures.patients), failures.ranked - len(failures.patients)
    apart = [_group_figures(test, worst) for test in failures.associations if test.apart]
    alike = [f"{TRAITS[test.trait]} ({_group_figures(test, worst)})" for test in failures.associations if not test.apart]
    sentences = [f"The {worst} worst differ from the other {others} in {listed(apart)}."] if apart else []
    if alike:
        groups = "they differ" if apart else f"the {worst} worst differ from the other {others}"
        limit = "with so few patients only large differences could be detected"
        sentences.append(f"There is no evidence that {groups} in {listed(alike)}; {limit}.")
    return head + " ".join(sentences)


def _group_figures(test: Association, worst: int) -> str:
    """The two groups' figures with the adjusted p: 3 of 10 against 5 of 72, adjusted p = 0.21."""
    p = adjusted_p(test.p_adjusted)
    if test.trait in ("brain_ml", "tumour_share"):
        known = "" if test.worst == worst else f", known in {test.worst} and {test.others}"
        digits, unit = (0, " ml") if test.trait == "brain_ml" else (3, "")
        figures = f"median {number(test.of_worst, digits)} against {number(test.of_others, digits)}{unit}{known}, {p}"
    else:
        counts = [round(share * n) for share, n in ((test.of_worst, test.worst), (test.of_others, test.others))]
        figures = f"{counts[0]} of {test.worst} against {counts[1]} of {test.others}, {p}"
    if not test.apart:
        return f"{test.level} {figures}".strip()
    return f"{TRAITS[test.trait]} ({f'{test.level} ' if test.level else ''}{figures})"
