"""The report: a run in; one self-contained page, `metrics.json`, the texts for a paper, tables and figures out."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mri_vit import style
from mri_vit.explain.methods.names import METHODS, SPACES
from mri_vit.report.figures import gallery, pictures
from mri_vit.report.numbers import everything
from mri_vit.report.numbers import maps as map_numbers
from mri_vit.report.pages import home as report_home
from mri_vit.report.pages import measures, tables, viewer
from mri_vit.report.reading.run import OWN, Run
from mri_vit.report.verdicts import maps as map_verdict
from mri_vit.report.words import checklists, methods, notation
from mri_vit.report.words import maps as map_texts
from mri_vit.run.atomic import write_bytes
from mri_vit.settings.models import CONTROLS

DEMO, DEMO_PATIENT = "demo", "demo-"  # the study on the built-in, made-up cohort, and how its patients' names begin
VERSIONS_FIRST = ("mri-vit", "torch", "monai")
REASONS_SHOWN = 6  # the flow diagram's box stays a box; the table below it has them all

# 25 MB of page is what a mail server lets through; the figures need 5 to 10 of them.
MAPS_SHOWN, MAPS_EACH = 12, 3  # patients on the page, and maps of each; the rest are on the patients' own pages
MAPS_BUDGET, MAPS_WIDTH, MAPS_QUALITY = 5_000_000, 960, 80  # bytes of page; pixels, as the picture is drawn; WebP's scale
GROUPS_BUDGET = 2_000_000  # bytes of the cohort's mean maps
QC_BUDGET, QC_WIDTH, QC_QUALITY = 8_000_000, 224, 60  # a quarter of the sheet's width: enough to see a brain cut off

TEXTS = ("methods.md", "tripod_ai.md", "claim.md")


def write(run: Run, home: Path) -> Path:
    """Write a report into the folder `home`, from the run as read alone, and return the page's path.

    `home` then holds index.html, metrics.json (every number on the page), methods.md, tripod_ai.md, claim.md, tables/*.csv,
    figures/*.svg and *.png, and patients/*.html for those whose map can be turned. Figures, tables and patients' pages that
    an earlier report wrote there, by its metrics.json, and this one does not are deleted, so nobody stays who is out of the run.

    Raises
    ------
    UsageError
        `home` is a file, or holds something else than a report of ours; nothing in it is touched.
    IntegrityError
        `home`, or one of its folders, is a link.
    """
    report_home.refuse(home)
    metrics = null(everything.measure(run))
    survivors = gallery.survivors(run, metrics)
    drawn, files = {}, {}
    for name, figure in gallery.of_report(run, metrics, survivors):
        found = {kind: style.to_bytes(figure, kind) for kind in ("svg", "png")}
        files |= {f"figures/{name}.{kind}": content for kind, content in found.items()}
        drawn[name] = pictures.data_url(found["svg"], "image/svg+xml")
    for name, table in tables.of_report(run, metrics, survivors).items():
        files[f"tables/{name}.csv"] = tables.to_csv(table).encode()
    links = viewer.links(run.maps)
    pages = {unquote(link) for link in links.values()}
    metrics |= {"files": sorted({*files, *pages})}
    report_home.delete(home, report_home.listed(home) - set(metrics["files"]))
    home.mkdir(parents=True, exist_ok=True)
    # First, so that a report that was killed is known as ours, with all that it may have written.
    _write(home / report_home.RECORD, json.dumps(metrics, indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    for name, content in files.items():
        (home / name).parent.mkdir(exist_ok=True)
        write_bytes(content, home / name)
    written = (
        methods.text(metrics, {"excluded": run.excluded.to_dict("records"), "brain_sources": run.brains}),
        checklists.tripod_ai(metrics),
        checklists.claim(metrics),
    )
    for name, text in zip(TEXTS, written, strict=True):
        _write(home / name, text)
    viewer.write(run.maps, metrics["maps"], home, run.study.name)
    # Last, so that a page is never newer than what it rests on.
    _write(home / "index.html", page(run, metrics, drawn, links))
    return home / "index.html"


def summary(metrics: Mapping[str, Any]) -> list[dict[str, str]]:
    """The terminal's table: a row per endpoint and model shown, its keys the columns. Takes `metrics.json` as read."""
    rows = []
    for name, endpoint in metrics["endpoints"].items():
        if not endpoint["models"]:
            rows.append({"endpoint": name, "model": "–", "n": "0", "result [95 % interval]": "–", "judged": "no result"})
        few = gallery.visible(metrics, endpoint["models"])
        for model, result in few.items():
            symbol, estimate = gallery.estimate(result)
            defined = estimate["value"] is not None and not math.isnan(estimate["value"])
            text = f"{symbol} {notation.interval(estimate, result['n'])}" if defined else f"{symbol} undefined"
            judged = notation.KINDS[result["verdict_kind"]]
            rows.append(
                {"endpoint": name, "model": model, "n": str(result["n"]), "result [95 % interval]": text, "judged": judged}
            )
        if left := len(endpoint["models"]) - len(few):
            rows.append(
                {"endpoint": name, "model": f"{left} more", "n": "", "result [95 % interval]": "in the report", "judged": ""}
            )
    return rows


def verdicts(metrics: Mapping[str, Any]) -> list[str]:
    """The verdicts as sentences, the candidates' and then the maps': "MGMT promoter methylation, vit: better than chance (…)".

    Where the study's own model has comparators, they are told of in one sentence, and the table has the rest.
    """
    transductive = metrics["transductive"]
    sentences = [f"Transductive: pretraining saw scans of patients judged here: {transductive}"] if transductive else []
    for name, endpoint in metrics["endpoints"].items():
        if not endpoint["models"]:
            why = notation.absence(metrics["cohort"]["known"][name], metrics["design"])
            sentences.append(f"{notation.title(name)}: {why}")
        for model in [OWN] if OWN in metrics["shown"] else metrics["shown"]:
            if model in endpoint["models"]:
                sentences.append(f"{notation.title(name)}, {model}: {endpoint['models'][model]['verdict']}")
        if endpoint["rivals"]:
            sentences.append(f"{notation.title(name)}, comparators: {endpoint['rivals']['sentence']}")
    to_do = map_texts.to_make_again(metrics)
    return [*sentences, *_map_verdicts(metrics["map_scores"]), *([to_do] if to_do else [])]


def _map_verdicts(scored: Mapping[str, Any] | None) -> list[str]:
    """A line per endpoint on the map that is its best witness, or why there is none."""
    sentences = []
    for name, endpoint in (scored or {"endpoints": {}})["endpoints"].items():
        head, method = f"Maps of {notation.title(name)}", map_numbers.best(scored or {}, name)
        if endpoint["no_finding"]:
            sentences.append(f"{head}: {endpoint['no_finding']}")
        elif method is None:
            sentences.append(f"{head}: {_none_passes(endpoint['methods'])}")
        else:
            count = f"best of {len(endpoint['methods'])}" if len(endpoint["methods"]) > 1 else "the only one"
            sentences.append(f"{head}, {notation.short(method)} ({count}): {endpoint['methods'][method]['verdict']}")
    return sentences


def _none_passes(methods: Mapping[str, Mapping[str, Any]]) -> str:
    """Not to be judged is another thing than to fail."""
    kinds = Counter(result["verdict_kind"] for result in methods.values())
    if set(kinds) == {"undefined"}:
        return f"not judged: fewer than {map_verdict.FEWEST} patients could be scored"
    counts = ", ".join(f"{kinds[kind]} {notation.MAP_KINDS[kind]}" for kind in map_verdict.ORDER if kinds[kind])
    return f"none of {len(methods)} passes its checks ({counts})"


def page(run: Run, metrics: Mapping[str, Any], drawn: Mapping[str, str], links: Mapping[str, str]) -> str:
    """The HTML page; `drawn` are the figures as data: URLs by name, `links` the patient pages by patient."""
    environment = style.templates("mri_vit.report.pages")
    environment.filters.update(
        number=notation.number,
        interval=notation.interval,
        signed=notation.signed,
        p=notation.p_value,
        adjusted_p=notation.adjusted_p,
        title=notation.title,
        setting=notation.setting,
        tied=notation.tied,
        short=notation.short,
        significant=notation.significant,
        duration=notation.duration,
        capitalize_first=lambda text: text[:1].upper() + text[1:],
    )
    environment.tests.update(control=CONTROLS.__contains__, known=notation.is_defined)
    environment.globals.update(
        absence=notation.absence,
        own=OWN,
        # What is told at length: the study's own model, and every model shown where there is none of its own.
        chief=[OWN] if OWN in metrics["shown"] else metrics["shown"],
        visible=lambda models: gallery.visible(metrics, models),
        file_name=notation.file_name,
        measures=measures.lines,
        estimate=gallery.estimate,
        kinds=notation.KINDS,
        marks=notation.MARKS,
        controls=notation.EXPLAINED,
        map_kinds=notation.MAP_KINDS,
        map_marks=notation.MAP_MARKS,
        methods=METHODS,
        scans=SPACES,
    )
    prepared = [(name, path) for name, path in run.qc if path.is_file()]
    sheets = pictures.shrunk([path for _, path in prepared], QC_WIDTH, QC_QUALITY, QC_BUDGET)
    return environment.get_template("page.html").render(
        m=metrics,
        pictures=drawn,
        links=links,
        excluded=run.excluded.to_dict("records"),
        reasons=_reasons(metrics["cohort"]["excluded_reasons"]),
        maps=_gallery(run, metrics["maps"]),
        groups=_groups(run, metrics),
        sheets=[(name, picture) for (name, _), picture in zip(prepared, sheets, strict=False)],
        sheets_left_out=len(prepared) - len(sheets),
        is_demo=_is_demo(run),
        settings={section: values for section, values in (metrics["settings"] or {}).items() if values},
        versions=_versions(metrics["environment"] or {}),
        models=metrics["models"],
        judged=[name for name, endpoint in metrics["endpoints"].items() if endpoint["models"]],
        to_make_again=map_texts.to_make_again(metrics),
        beside_random_weights=map_verdict.BESIDE_RANDOM_WEIGHTS,
        explained_class=map_texts.EXPLAINED_CLASS,
        texts=TEXTS,
    )


def _gallery(run: Run, told: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], list[tuple[Mapping[str, Any], str]]]]:
    """Patients with the first of their maps and their pictures; where bytes run out, each patient's first goes before others."""
    pairs = list(zip(run.maps, told, strict=True))[:MAPS_SHOWN]
    wanted = [
        (said["patient"], entry, found.overlays[entry["index"]])
        for rank in range(MAPS_EACH)
        for found, said in pairs
        for entry in said["maps"][rank : rank + 1]
    ]
    packed = pictures.shrunk([path for *_, path in wanted], MAPS_WIDTH, MAPS_QUALITY, MAPS_BUDGET)
    shown: dict[str, list[tuple[Mapping[str, Any], str]]] = {}
    for (patient, entry, _), picture in zip(wanted, packed, strict=False):
        shown.setdefault(patient, []).append((entry, picture))
    return [(said, shown[said["patient"]]) for _, said in pairs if said["patient"] in shown]


def _groups(run: Run, metrics: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], str]]:
    """The cohort's mean maps with their pictures, endpoints with a finding first, and of these the maps that are their own."""
    scored = (metrics["map_scores"] or {"endpoints": {}})["endpoints"]

    def weak(pair: tuple[Mapping[str, Any], Path]) -> tuple[bool, bool]:
        entry, endpoint = pair[0], scored.get(pair[0]["endpoint"])
        return endpoint is None or bool(endpoint["no_finding"]), not METHODS[entry["method"]].per_endpoint

    ordered = sorted((pair for pair in run.groups if pair[0]["method"] in METHODS), key=weak)
    packed = pictures.shrunk([path for _, path in ordered], MAPS_WIDTH, MAPS_QUALITY, GROUPS_BUDGET)
    return [(entry, picture) for (entry, _), picture in zip(ordered, packed, strict=False)]


def _is_demo(run: Run) -> bool:
    """Whether the patients are the made-up ones; anybody may call a study so."""
    people = run.predictions.patient
    return run.study.name == DEMO and len(people) > 0 and bool(people.str.startswith(DEMO_PATIENT).all())


def _reasons(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Reasons of exclusion with their patients, the most frequent first, the rare ones together."""
    ordered = sorted(counts.items(), key=lambda reason: -reason[1])
    rest = sum(count for _, count in ordered[REASONS_SHOWN:])
    return ordered[:REASONS_SHOWN] + ([("other reasons, listed below", rest)] if rest else [])


def _versions(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    versions = environment.get("versions", {})
    order = [name for name in VERSIONS_FIRST if name in versions] + sorted(set(versions) - set(VERSIONS_FIRST))
    facts = [(name, str(versions[name])) for name in order]
    labels = {"git_commit": "git commit", "device": "device", "threads": "threads", "seed": "seed", "started": "started"}
    return facts + [(label, str(environment[key])) for key, label in labels.items() if environment.get(key) is not None]


def null(value: Any) -> Any:
    """The same structure with None for NaN, which JSON does not know."""
    if isinstance(value, Mapping):
        return {key: null(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [null(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _write(path: Path, text: str) -> None:
    write_bytes(text.encode(), path)
