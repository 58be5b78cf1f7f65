"""The report: a run folder in, one self-contained page, `metrics.json`, tables and figures out."""

from __future__ import annotations

import base64
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from mri_vit.report import figures, numbers
from mri_vit.report import run as run_folder
from mri_vit.report.run import Run

TITLES = {  # the defaults' full names; any other endpoint goes by its own
    "mgmt": "MGMT promoter methylation",
    "tertp": "TERT promoter mutation",
    "pten": "PTEN alteration",
    "os": "Overall survival",
}
DEMO = "demo"  # the name of the study on the built-in, made-up cohort
MAPS_SHOWN = 24  # at about 0.5 MB a picture, the page stays small enough to send by mail
VERSIONS_FIRST = ("mri-vit", "torch", "monai")


def write(run: Path) -> Path:
    """Write `report/` into a finished run folder, from that folder's files alone, and return the page's path.

    `report/` holds index.html, metrics.json (every number on the page), tables/*.csv and figures/*.svg and *.png.
    Raises UsageError when the run is incomplete, IntegrityError when its files contradict each other.
    """
    found = run_folder.read(Path(run))
    metrics = numbers.measure(found)
    home = Path(run) / "report"
    for name in ("tables", "figures"):
        (home / name).mkdir(parents=True, exist_ok=True)
    drawn = _draw(found, metrics)
    for name, figure in drawn.items():
        for kind in ("svg", "png"):
            (home / "figures" / f"{name}.{kind}").write_bytes(figures.to_bytes(figure, kind))
    for name, table in _tables(found, metrics).items():
        table.to_csv(home / "tables" / f"{name}.csv", index=False, lineterminator="\n")
    _replace(home / "metrics.json", json.dumps(_null(metrics), indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    pictures = {name: _data_url((home / "figures" / f"{name}.svg").read_bytes(), "image/svg+xml") for name in drawn}
    # Last, so that a page is never newer than what it rests on.
    _replace(home / "index.html", page(found, metrics, pictures))
    return home / "index.html"


def summary(metrics: Mapping[str, Any]) -> list[dict[str, str]]:
    """The terminal's table: a row per endpoint and model, its keys the columns. Takes `metrics.json` as read."""
    rows = []
    for name, endpoint in metrics["endpoints"].items():
        head = {"endpoint": name, "model": "–", "known": str(endpoint["known"])}
        if not endpoint["models"]:
            rows.append({**head, "result [95 % interval]": "–", "verdict": absence(metrics["cohort"]["known"][name])})
        for model, result in endpoint["models"].items():
            symbol, estimate = ("AUC", result["auc"]) if endpoint["kind"] == "binary" else ("C", result["harrell_c"])
            text = f"{symbol} {interval(estimate, result['n'])}"
            rows.append({**head, "model": model, "result [95 % interval]": text, "verdict": result["verdict"]})
    return rows


def page(run: Run, metrics: Mapping[str, Any], pictures: Mapping[str, str]) -> str:
    """The HTML page; `pictures` are the figures as data: URLs by name."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mri_vit.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, interval=interval, p=p_value, title=title)
    environment.globals.update(absence=absence, figure_name=figure_name)
    shown = run.maps[:MAPS_SHOWN]
    return environment.get_template("page.html").render(
        m=metrics,
        pictures=pictures,
        excluded=run.excluded.to_dict("records"),
        maps=[
            (facts, _data_url(found.overlay.read_bytes(), "image/png"))
            for facts, found in zip(metrics["maps"], shown, strict=False)
        ],
        maps_left_out=len(run.maps) - len(shown),
        is_demo=run.study.name == DEMO,
        settings={section: values for section, values in metrics["settings"].items() if values},
        versions=_versions(metrics["environment"]),
        models=sorted({model for endpoint in metrics["endpoints"].values() for model in endpoint["models"]}),
    )


def number(value: float | None, digits: int = 3, n: int | None = None) -> str:
    """A number as the page writes it; an undefined one says so, and of how many patients."""
    if value is None or math.isnan(value):
        return "undefined" if n is None else f"undefined (n = {n})"
    return f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def interval(estimate: Mapping[str, float | None], n: int) -> str:
    """An estimate as the page writes it: 0.912 [0.850, 0.974]."""
    value, low, high = estimate["value"], estimate["low"], estimate["high"]
    if value is None or math.isnan(value):
        return number(value, n=n)
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return f"{number(value)} [undefined (n = {n})]"
    return f"{number(value)} [{number(low)}, {number(high)}]"


def p_value(value: float | None) -> str:
    """A p value: p = 0.0312, and never p = 0."""
    if value is None or math.isnan(value):
        return "p undefined"
    return "p < 0.0001" if value < 0.0001 else f"p = {value:.4f}"


def title(name: str) -> str:
    """An endpoint's full name."""
    return TITLES.get(name, name)


def absence(known: int) -> str:
    """Why an endpoint that was asked for, with so many labels known in the table, has no result."""
    return "no label known: not trained" if known == 0 else "labels known, but no predictions"


def figure_name(kind: str, endpoint: str, model: str) -> str:
    """File name of a figure or table; whatever a model is called, it stays one name in one folder."""
    return f"{kind}_{endpoint}_{re.sub(r'[^A-Za-z0-9.-]+', '-', model)}"


def _draw(run: Run, metrics: Mapping[str, Any]) -> dict[str, Any]:
    lines = []
    drawn = {}
    several = len({model for endpoint in metrics["endpoints"].values() for model in endpoint["models"]}) > 1
    for endpoint in run.study.endpoints:
        for model, result in metrics["endpoints"][endpoint.name]["models"].items():
            rows = numbers.known_rows(run, endpoint, model)
            if endpoint.kind == "binary":
                drawn[figure_name("roc", endpoint.name, model)] = figures.roc(rows, numbers.averaged(rows))
                symbol, estimate = "AUC", result["auc"]
            else:
                groups = numbers.first_repeat_groups(rows)
                drawn[figure_name("km", endpoint.name, model)] = figures.kaplan_meier(groups, result["at_risk_days"])
                symbol, estimate = "C", result["harrell_c"]
            label = f"{title(endpoint.name)} ({model})" if several else title(endpoint.name)
            lines.append({"label": label, "text": f"{symbol} {interval(estimate, result['n'])}", **estimate})
    if lines:
        drawn["forest"] = figures.forest(lines)
    return drawn


def _tables(run: Run, metrics: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    results, folds = [], []
    tables = {"excluded": run.excluded}
    for endpoint in run.study.endpoints:
        measured = metrics["endpoints"][endpoint.name]
        for model, result in measured["models"].items():
            measure = "auc" if endpoint.kind == "binary" else "harrell_c"
            head = {"endpoint": endpoint.name, "model": model}
            spread = {key: result[key] for key in ("fold_mean", "fold_variance", "undefined_folds")}
            within = {"within_folds": result[f"{measure}_within_folds"]["value"]}
            results.append({**head, "measure": measure, "n": result["n"], **result[measure], **within, **spread})
            folds += [{**head, **fold} for fold in result["folds"]]
            if endpoint.kind == "binary":
                pooled = numbers.averaged(numbers.known_rows(run, endpoint, model))
                tables[figure_name("roc", endpoint.name, model)] = figures.roc_table(pooled)
    tables["results"], tables["folds"] = pd.DataFrame(results), pd.DataFrame(folds)
    return tables


def _versions(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    versions = environment.get("versions", {})
    order = [name for name in VERSIONS_FIRST if name in versions] + sorted(set(versions) - set(VERSIONS_FIRST))
    facts = [(name, str(versions[name])) for name in order]
    labels = (
        ("git_commit", "git commit"),
        ("device", "device"),
        ("threads", "threads"),
        ("seed", "seed"),
        ("started", "started"),
    )
    return facts + [(label, str(environment[key])) for key, label in labels if environment.get(key) is not None]


def _null(value: Any) -> Any:
    """The same structure with None for NaN, which JSON does not know."""
    if isinstance(value, Mapping):
        return {key: _null(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_null(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _data_url(content: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8", newline="\n")
    os.replace(beside, path)
