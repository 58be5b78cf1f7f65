"""WHO type and grade: what a row states of IDH, 1p/19q, ATRX, grade and diagnosis goes in; the type comes out, or why none does.

The types are the diffuse gliomas of adults in the classification of 2021 (Louis et al. 2021, doi:10.1093/neuonc/noab106):

- gbm: glioblastoma. IDH wildtype, and of grade 4 or with a molecular feature of glioblastoma (mutated TERT promoter, amplified
  EGFR, gain of chromosome 7 with loss of 10). A stated diagnosis must be an astrocytoma or glioblastoma.
- oligo: oligodendroglioma. IDH mutant, 1p/19q codeleted.
- astro: astrocytoma. IDH mutant, 1p/19q not codeleted; where it is not known, ATRX mutated or lost, unless the diagnosis is an
  oligodendroglioma.

Else there is none. A diagnosis that names a type in the words of 2021, with IDH, is a statement of its own: where it contradicts
the markers, readings disagree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mri_vit.data.columns import key
from mri_vit.importers.layout import MUTATION, NO, YES, CellValue, Row, Rule, missing, named_mutation, text, words

GBM, ASTRO, OLIGO = "gbm", "astro", "oligo"
TYPES = (GBM, ASTRO, OLIGO)
GRADES = ("2", "3", "4")  # of diffuse gliomas of adults: Louis et al. 2021, doi:10.1093/neuonc/noab106

FORMS = (
    "{}",
    "g{}",
    "grade {}",
    "who {}",
    "who grade {}",
    "who cns grade {}",
    "cns who grade {}",
)  # G2: TCGA; else plain
NUMERALS = {"1": "i", "2": "ii", "3": "iii", "4": "iv"}
ANY_GRADE = words(
    {n: (f"{n}.0", *(form.format(one) for form in FORMS for one in (n, roman))) for n, roman in NUMERALS.items()},
    ("gx", "3 vs 4"),  # the GDC's grade that could not be assessed; MU-Glioma-Post
)
# UCSF-PDGM: intact, Co-deletion, "relative co-deletion", which it diagnosed as oligodendroglioma in four patients and as
# astrocytoma in two, so that it decides nothing; Ceccarelli et al. 2016: codel, non-codel, IDHmut-codel, IDHmut-non-codel, IDHwt.
CODELETION = words(
    {
        "1": ("codel", "codeleted", "co-deleted", "codeletion", "co-deletion", "idhmut-codel", *YES),
        "0": ("intact", "retained", "non-codel", "non-codeleted", "not codeleted", "idhmut-non-codel", *NO),
    },
    ("relative co-deletion", "idhwt"),
)
FEATURE = words({"1": ("mutant", "mutated", "amplified", "gain chr 7 & loss chr 10", *YES)})  # the third: Ceccarelli et al. 2016
LOSS = words({"1": ("lost", "loss", "mutant", "mutated", *YES)})
ASTROCYTIC = re.compile(r"(?i)^(?!.*(oligo|pilocytic|pleomorphic|subependymal)).*(astrocyt|glioblastom|gliosarcom|\bgbm\b)")


def read_grade(raw: str, column: str) -> CellValue:
    """2, 3 or 4, in Arabic or Roman numerals; a tumour of grade 1 is no diffuse glioma."""
    value = ANY_GRADE(raw, column)
    return CellValue("", f"{raw} is no grade of a diffuse glioma, so missing") if value.value == "1" else value


def named_type(raw: str, column: str) -> CellValue:
    """The type that a diagnosis names together with IDH; "Glioblastoma" alone may be of either.

    Glioblastoma, IDH-mutant, of 2016 is an astrocytoma since 2021.
    """
    if missing(raw):
        return text(raw, column)
    name = key(raw)
    mutant, wildtype = "idhmut" in name, "idhwild" in name
    astrocytic = ASTROCYTIC.match(raw) is not None
    if mutant and not wildtype and "oligodendroglioma" in name and re.search("(?<!non)(?<!not)codel", name):
        return CellValue(OLIGO, f"the diagnosis names {OLIGO}")
    if mutant and not wildtype and astrocytic:
        return CellValue(ASTRO, f"the diagnosis names {ASTRO}")
    if wildtype and not mutant and astrocytic and "glioblastoma" in name:
        return CellValue(GBM, f"the diagnosis names {GBM}")
    return CellValue("", "the diagnosis names none of the types of 2021, so missing")


@dataclass(frozen=True)
class Markers:
    """The columns of a table from which the type follows; of several for one marker but IDH the first that is filled counts."""

    idh: tuple[str, ...]  # mutant where one is, wildtype where all are
    codeletion: tuple[str, ...] = ()
    atrx: tuple[str, ...] = ()
    grade: tuple[str, ...] = ()
    diagnosis: tuple[str, ...] = ()
    features: tuple[str, ...] = ()  # molecular ones of glioblastoma
    others: tuple[str, ...] = ()  # genes of which a mutation makes another type of it
    of_grade: Rule = read_grade
    collected: str = ""  # grade of all patients of a collection, where its table has no column of it

    def __call__(self, row: Row) -> CellValue:
        """The type by the markers of a row, with the cells that were looked at; empty where none follows."""
        value, why = self._type(row)
        columns = [*self.idh, *self.codeletion, *self.atrx, *self.grade, *self.diagnosis, *self.features, *self.others]
        cells = [f"{row.first([name])} {row.cell(name)}" for name in columns if not missing(row.cell(name))]
        return CellValue(value, f"{why} ({', '.join(cells)})" if cells else why)

    def _type(self, row: Row) -> tuple[str, str]:
        there = [name for name in self.idh if row.first([name])]
        idh = {named_mutation(row.cell(name), name).value for name in there}
        codeleted = _stated(row, self.codeletion, CODELETION)
        diagnosis = next((row.cell(name) for name in self.diagnosis if not missing(row.cell(name))), "")
        if "1" in idh:
            return self._of_mutant(row, codeleted, diagnosis)
        if idh != {"0"}:
            return "", "IDH is not known, so no type"
        if codeleted == "1" or any(MUTATION(row.cell(name), name).value == "1" for name in self.others):
            return "", "IDH wildtype, but another marker is not that of gbm, so no type"
        if diagnosis and not ASTROCYTIC.match(diagnosis):
            return "", "IDH wildtype, but the diagnosis is not astrocytic, so no type"
        if (self.collected or _stated(row, self.grade, self.of_grade)) == "4":
            return GBM, f"IDH wildtype of grade 4 is {GBM}"
        if any(FEATURE(row.cell(name), name).value for name in self.features):
            return GBM, f"IDH wildtype with a molecular feature of glioblastoma is {GBM}"
        return "", "IDH wildtype without grade 4 or a molecular feature of glioblastoma, so no type"

    def _of_mutant(self, row: Row, codeleted: str, diagnosis: str) -> tuple[str, str]:
        if codeleted == "1":
            return OLIGO, f"IDH mutant and 1p/19q codeleted is {OLIGO}"
        if codeleted == "0":
            return ASTRO, f"IDH mutant and 1p/19q not codeleted is {ASTRO}"
        if _stated(row, self.atrx, LOSS) and "oligodendroglioma" not in key(diagnosis):
            return ASTRO, f"IDH mutant and ATRX mutated or lost is {ASTRO}"
        return "", "IDH mutant, and 1p/19q is not known, so no type"


def _stated(row: Row, columns: Sequence[str], rule: Callable[[str, str], CellValue]) -> str:
    """What the first filled of these columns states by a rule; "" where nothing is known."""
    return next((rule(row.cell(name), name).value for name in columns if not missing(row.cell(name))), "")
