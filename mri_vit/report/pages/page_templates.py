"""The templates of a report with their filters, the names that all of them share, and the policy that a page carries."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping

import jinja2

from mri_vit import style
from mri_vit.data.cohort import visit_id
from mri_vit.explain.methods.catalogue import METHODS
from mri_vit.explain.outputs.overlays import nearly_even
from mri_vit.report.reading.run import OWN
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.verdicts import is_finding
from mri_vit.report.words import caveats, endpoint_results, notation, run_facts
from mri_vit.settings import recipe
from mri_vit.settings.recipe import NO_CANDIDATES


def report_templates(metrics: Metrics) -> jinja2.Environment:
    """The templates for one report."""
    environment = style.templates("mri_vit.report.pages")
    under_their_names = (
        *(notation.number, notation.interval, notation.judged, notation.signed, notation.adjusted_p, notation.title),
        *(notation.setting, notation.tied, notation.short, notation.significant, notation.in_words, notation.duration),
        *(notation.symbol, notation.capitalize_first, run_facts.could_show, nearly_even),
    )
    environment.filters.update({written.__name__: written for written in under_their_names})
    environment.filters.update(
        p=notation.p_value,
        ratio=caveats.hazard_ratio_in_words,
        column=caveats.covariate_label,
        change=caveats.gain_of_c,
        sequence=recipe.title,
        explained=caveats.with_glossary_links,
        anchor=caveats.glossary_anchor,
        short_truth=run_facts.short_label,
    )
    environment.tests.update(control=NO_CANDIDATES.__contains__, known=notation.is_defined)
    environment.globals.update(
        absence=run_facts.absence,
        own=OWN,
        chief=run_facts.chief(metrics),
        visible=lambda models: run_facts.visible(metrics, models),
        file_name=notation.file_name,
        measures=endpoint_results.measure_rows,
        kinds=notation.KINDS,
        marks=notation.MARKS,
        controls=notation.EXPLAINED,
        map_kinds=notation.MAP_KINDS,
        map_marks=notation.MAP_MARKS,
        methods=METHODS,
        terms=caveats.GLOSSARY,
        visit_id=visit_id,
        is_finding=is_finding,
        table1_heads=run_facts.table1_heads,
        table1_lines=run_facts.table1_lines,
        table1_caption=run_facts.table1_caption,
    )
    return environment


NOWHERE = {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'"}


def content_policy(sources: Mapping[str, str]) -> str:
    """The policy that allows these sources and no connection, worker, frame, WebAssembly or eval."""
    return "; ".join(f"{name} {allowed}" for name, allowed in {**NOWHERE, **sources}.items())


def source_hash(text: str) -> str:
    """A script or style in the page itself, as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
