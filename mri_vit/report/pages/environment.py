"""The templates of a report with their filters, and the names that all of them share."""

from __future__ import annotations

import jinja2

from mri_vit import style
from mri_vit.data.cohort import visit_id
from mri_vit.explain.images.overlay import nearly_even
from mri_vit.explain.methods.names import METHODS
from mri_vit.report.reading.run import OWN
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.verdicts.maps import is_finding
from mri_vit.report.words import added_value, glossary, measures, notation, patient_result, table1
from mri_vit.report.words.wording import in_words
from mri_vit.settings import sequences
from mri_vit.settings.models import NO_CANDIDATES


def of_report(metrics: Metrics) -> jinja2.Environment:
    """The templates for one report."""
    environment = style.templates("mri_vit.report.pages")
    environment.filters.update(
        number=notation.number,
        nearly_even=nearly_even,
        interval=notation.interval,
        judged=notation.judged,
        signed=notation.signed,
        p=notation.p_value,
        adjusted_p=notation.adjusted_p,
        title=notation.title,
        setting=notation.setting,
        tied=notation.tied,
        ratio=added_value.of_ratio,
        column=added_value.label,
        change=added_value.of_gain,
        short=notation.short,
        significant=notation.significant,
        sequence=sequences.title,
        in_words=in_words,
        duration=notation.duration,
        symbol=notation.symbol,
        could_show=notation.could_show,
        explained=glossary.explained,
        anchor=glossary.anchor,
        short_truth=patient_result.short_truth,
        capitalize_first=lambda text: text[:1].upper() + text[1:],
    )
    environment.tests.update(control=NO_CANDIDATES.__contains__, known=notation.is_defined)
    environment.globals.update(
        absence=notation.absence,
        own=OWN,
        chief=notation.chief(metrics),
        visible=lambda models: notation.visible(metrics, models),
        file_name=notation.file_name,
        measures=measures.lines,
        kinds=notation.KINDS,
        marks=notation.MARKS,
        controls=notation.EXPLAINED,
        map_kinds=notation.MAP_KINDS,
        map_marks=notation.MAP_MARKS,
        methods=METHODS,
        terms=glossary.TERMS,
        visit_id=visit_id,
        is_finding=is_finding,
        table1_heads=table1.heads,
        table1_lines=table1.lines,
        table1_caption=table1.caption,
    )
    return environment
