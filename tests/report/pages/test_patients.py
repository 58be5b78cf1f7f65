"""Patient pages: what Chromium draws from disk, what a page may load, and what of a scan is published."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from urllib.parse import quote, unquote

import matplotlib as mpl
import nibabel as nib
import numpy as np
import pytest
import torch
from made import maps as made_maps
from made.browser import Seen, driven, open_page, violations
from made.run import make_run
from made.study import make_tiny
from PIL import Image

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient, visit_id
from mri_vit.data.store import token_file
from mri_vit.data.volume import Volume, read, write
from mri_vit.errors import UnusablePatient
from mri_vit.explain.outputs import overlays
from mri_vit.explain.outputs.map_files import brain_only, explain
from mri_vit.explain.outputs.records import NetworkId
from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.report import assembly, judged_maps
from mri_vit.report.pages import page_pictures, patient_pages, report_files
from mri_vit.report.pages.patient_pages import Visit
from mri_vit.report.reading import run as run_folder
from mri_vit.report.reading import run_files
from mri_vit.report.reading.run import Run
from mri_vit.report.reading.run_files import Map
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.patients import EndpointMaps, MapEvaluation, MapResult, PatientMaps
from mri_vit.report.words import map_sentences, notation, run_facts
from mri_vit.settings import schema
from mri_vit.settings.schema import DEFAULT_ENDPOINTS, Study
from mri_vit.settings.sections import Grid

pytestmark = pytest.mark.long(50)

HOT_MM = np.array([32.0, 22.0, 12.0])  # RAS+: on the patient's right, to the front, above the middle
OTHER_MM = np.array([-28.0, -20.0, 8.0])  # of another map: on the left, to the back
RADII_MM = np.array([60.0, 75.0, 50.0])  # of the made-up brain around (0, 0, 0)
# Axes stored to the left, front and top, with unequal spacing and an offset: a page that ignored the affine would show it.
AFFINE = np.array([[-3.0, 0, 0, 90], [0, 2.5, 0, -100], [0, 0, 4.0, -70], [0, 0, 0, 1.0]])
SHAPE = (61, 81, 36)
TURN = np.deg2rad(20)
# From a reference's space to the grid's: turned about the foot-head axis, and moved.
ASKEW = np.array([[np.cos(TURN), -np.sin(TURN), 0, 4], [np.sin(TURN), np.cos(TURN), 0, -7], [0, 0, 1, 3], [0, 0, 0, 1.0]])
TALL = (900, 1900)  # a window that shows the whole viewer below the predictions
HOSTILE = '</script><script>document.body.dataset.broken = 1</script><img src=x onerror="document.body.dataset.broken = 1">'


def head(hot_mm: np.ndarray = HOT_MM) -> tuple[Volume, Volume]:
    """A scan whose left half is brighter and its map with one hot spot; both 0 outside the brain."""
    index = np.moveaxis(np.indices(SHAPE), 0, -1)
    place_mm = index @ AFFINE[:3, :3].T + AFFINE[:3, 3]
    inside = ((place_mm / RADII_MM) ** 2).sum(axis=-1) <= 1
    scan = np.where(inside, np.where(place_mm[..., 0] < 0, 900, 500), 0) + 100 * np.sin(place_mm[..., 1] / 9) * inside
    far = ((place_mm - hot_mm) ** 2).sum(axis=-1)
    heat = np.where(inside, 0.5 + 20 * np.exp(-far / (2 * 7.0**2)), 0)
    return brain_only(Volume(scan.astype(np.float32), AFFINE), inside), Volume(heat.astype(np.float32), AFFINE)


def make_maps(folder: Path, patient: str, note: str) -> None:
    """Two maps with their hot spots apart: rollout, and gradient attention for MGMT."""
    folder.mkdir(parents=True)
    scan, _ = head()
    write(scan, folder / "brain.nii.gz")
    entries = []
    for method, endpoint, hot_mm in (("rollout", "", HOT_MM), ("gradient_attention", "mgmt", OTHER_MM)):
        one = {**made_maps.entry(method, endpoint, "p"), "note": note, "peak": 20.5, "peak_mm": hot_mm.tolist()}
        _, heat = head(hot_mm)
        write(heat, folder / one["files"]["t1ce"])
        overlays.draw(overlays.underlay(scan, heat.array > 0), heat, "a picture", folder / one["overlay"])
        entries.append(one)
    sidecar = {**made_maps.facts(patient, entries), "fold": 2, "brain": "brain.nii.gz"}
    (folder / "map.json").write_text(json.dumps(sidecar))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Metrics]:
    """A made-up run, hostile in its name, and what is measured of two of its endpoints."""
    run = run_folder.read_run(make_run(tmp_path_factory.mktemp("runs") / "made-up", models=("vit",)))
    asked = tuple(one for one in run.study.endpoints if one.name in ("mgmt", "os"))
    run = replace(run, study=run.study.model_copy(update={"endpoints": asked, "name": f"study {HOSTILE}"}))
    return run, assembly.metrics(run)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "made-up"
    make_maps(folder / "maps" / "p1", f"p1{HOSTILE}", HOSTILE)
    make_maps(folder / "maps" / "p 2#", "p2", "a note")
    return folder


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared patient whose reference lies askew to the grid."""
    folder = make_tiny(tmp_path_factory.mktemp("prepared")).prepared / "p00"
    record = {"config_sha256": "", "inputs": {}, "steps": [], "to_grid": dict.fromkeys(schema.CHANNELS, ASKEW.tolist())}
    (folder / "patient.json").write_text(json.dumps(record))
    Image.new("RGB", (896, 700), (90, 0, 0)).save(folder / "qc.png")
    return folder


def visits(run: Path, metrics: Metrics, prepared: Path | None = None, tumour: Path | None = None) -> list[Visit]:
    """Those with maps, and one who has scans alone."""
    found, people = maps(run), metrics.patients
    mapped = [
        Visit(one.patient, one.folder.name, person, "", one, said, None, tumour)
        for one, said, person in zip(found, told(found), people, strict=False)
    ]
    return [*mapped, Visit("p3", "p3", people[2], "", None, None, prepared, None)]


@pytest.fixture(scope="module")
def addresses(run: Path, report: tuple[Run, Metrics], scanned: Path) -> dict[str, str]:
    mask = np.zeros(SHAPE, np.uint8)
    mask[20:30, 40:52, 15:22] = 1
    write(Volume(mask, AFFINE), run / "mask.nii.gz")
    found = visits(run, report[1], scanned, run / "mask.nii.gz")
    patient_pages.write_patient_pages(report[0], report[1], found, run / "report", report_files.report_templates(report[1]))
    return {one.visit: one.link for one in found}


def maps(run: Path) -> list[Map]:
    return list(run_files.maps(run / "maps", made_maps.SETTINGS, [])[0])


def told(found: list[Map]) -> list[PatientMaps]:
    """What the report says of them: rollout passes for one endpoint, gradient attention is no finding."""
    kinds = {"rollout": {"os": "passes"}, "gradient_attention": {"mgmt": "none"}}
    scored = MapEvaluation.model_construct(
        endpoints={
            endpoint: EndpointMaps.model_construct(
                methods={method: MapResult.model_construct(verdict_kind=kind, verdict=f"said of {method} {HOSTILE}")}
            )
            for method, of in kinds.items()
            for endpoint, kind in of.items()
        }
    )
    return [judged_maps.patient(shown, scored) for shown in found]


@pytest.fixture(scope="module")
def see(run: Path, addresses: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Seen]:
    """The hostile patient's page at a view; each is opened once, since a browser's start takes seconds."""

    @cache
    def opened(view: str) -> Seen:
        return open_page(run / "report", f"{addresses[f'p1{HOSTILE}']}#{view}", tmp_path_factory.mktemp("seen"), TALL)

    return opened


def canvas(picture: np.ndarray) -> np.ndarray:
    """The black stage: the rows and columns between the first and the last that are mostly black."""
    black = picture.max(axis=-1) < 8
    rows, columns = (np.flatnonzero(black.mean(axis=axis) > 0.3) for axis in (1, 0))
    return picture[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def centre(mask: np.ndarray) -> np.ndarray:
    """Column and row of a mask's centre."""
    assert mask.sum() > 50, "nothing is drawn"
    return np.argwhere(mask).mean(axis=0)[::-1]


@pytest.mark.parametrize(
    ("view", "hot_mm", "across", "down"),
    [
        (
            "axial",
            HOT_MM,
            (0, -1),
            (1, -1),
        ),  # the patient's right on the left: x falls to the right of the picture; y falls downwards
        ("coronal", HOT_MM, (0, -1), (2, -1)),
        ("sagittal-1", OTHER_MM, (1, -1), (2, -1)),  # the front on the left; the second map
    ],
)
def test_the_hot_spot_is_drawn_where_it_lies_in_the_head(see, view, hot_mm, across, down):
    seen = see(view)
    assert 'data-state="ready"' in seen.body
    assert "data-violation" not in seen.body
    stage = canvas(seen.picture)
    red, green, blue = np.moveaxis(stage, -1, 0)
    grey = (abs(red - green) < 6) & (abs(green - blue) < 6) & (red > 20) & (red < 250)  # the scan; letters are white
    warm = (red > 180) & (red - blue > 60)
    hot, brain = centre(warm), np.argwhere(grey | warm)
    top, left = np.percentile(brain, 0.2, axis=0)  # anti-aliased letters are a few grey pixels
    bottom, right = np.percentile(brain, 99.8, axis=0)
    cut = np.sqrt(1 - ((hot_mm / RADII_MM) ** 2)[list({0, 1, 2} - {across[0], down[0]})].sum())  # the ellipse in this plane
    for found, low, high, (axis, sign) in zip(hot, (left, top), (right, bottom), (across, down), strict=True):
        expected = (low + high) / 2 + sign * hot_mm[axis] / (RADII_MM[axis] * cut) * (high - low) / 2
        assert found == pytest.approx(expected, abs=0.04 * (high - low))


def test_left_and_right_of_the_scan_itself_are_those_of_radiology(see):
    stage = canvas(see("axial").picture)
    grey = (np.ptp(stage, axis=-1) < 6) & (stage[..., 0] > 20) & (stage[..., 0] < 250)
    middle = (np.argwhere(grey)[:, 1].min() + np.argwhere(grey)[:, 1].max()) // 2
    brightness = stage[..., 0]
    picture_left, picture_right = (brightness[:, part][grey[:, part]].mean() for part in (slice(0, middle), slice(middle, None)))
    assert picture_right > picture_left + 40  # the left half of the head is the bright one


@pytest.mark.slow
def test_the_3d_view_is_cut_open_at_the_hot_spot(see):
    seen = see("render")
    assert 'data-state="ready"' in seen.body
    red, green, blue = np.moveaxis(canvas(seen.picture), -1, 0)
    warm = (red > 180) & (green > 90) & (red - blue > 60)
    grey = (abs(red - green) < 6) & (abs(green - blue) < 6) & (red > 20)
    assert centre(warm)[0] < centre(grey)[0]  # seen from the front: the patient's right on the left


def test_a_hostile_id_note_and_study_name_stay_text(see):
    seen = see("axial")
    assert 'data-state="ready"' in seen.body
    assert "data-broken" not in seen.body
    assert "data-violation" not in seen.body  # not even refused: it never was an element
    assert '<img src="x"' not in seen.dom
    assert seen.dom.count("<script") == 3  # volumes, NiiVue, page


def test_another_map_can_be_chosen_and_brings_its_peak_its_facts_and_its_verdict(see):
    for view, shown, hidden, hot_mm in (("axial", 0, 1, HOT_MM), ("sagittal-1", 1, 0, OTHER_MM)):
        seen = see(view)
        assert f'data-map="{shown}"' in seen.body
        assert "data-violation" not in seen.body
        sections = re.findall(r'<section class="map" data-map="(\d)"( hidden="")?', seen.dom)
        assert sorted(sections) == sorted([(str(shown), ""), (str(hidden), ' hidden=""')])
        position = re.search(r'id="position">x ([-\d.]+), y ([-\d.]+), z ([-\d.]+) mm', seen.dom)
        assert position
        assert np.abs(np.array(position.groups(), float) - hot_mm).max() < 0.2
    assert "MGMT promoter methylation: gradient-weighted attention (no finding)</option>" in seen.dom


DRIVE = """
const wait = (done) => new Promise((go) => { const ask = () => (done() ? go() : setTimeout(ask, 50)); ask(); });
const at = () => document.getElementById("position").textContent.match(/-?[0-9.]+/g).map(Number);
(async () => {
  await wait(() => document.body.dataset.state === "ready" || document.body.dataset.state === "failed");
  const canvas = document.getElementById("canvas"), box = canvas.getBoundingClientRect();
  const middle = { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 };
  const sent = { deltaY: 100, bubbles: true, cancelable: true, ...middle };
  const turn = (ctrlKey) => canvas.dispatchEvent(new WheelEvent("wheel", { ...sent, ctrlKey }));
  const press = (key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  const told = { peak: at(), height: box.height, focused: document.activeElement === canvas };
  turn(false); await wait(() => String(at()) !== String(told.peak)); told.first = at();
  turn(false); await wait(() => String(at()) !== String(told.first)); told.leafed = at();
  told.zoomed = document.body.dataset.zoom ?? null;
  turn(true); told.zoom = Number(document.body.dataset.zoom); told.after = at();
  press("ArrowUp"); told.up = at();
  press("t"); await wait(() => document.body.dataset.tumour === "false"); told.hidden = document.body.dataset.tumour;
  document.body.dataset.driven = JSON.stringify(told);
})();
"""


def test_the_wheel_leafs_ctrl_and_wheel_zoom_and_keys_do_what_the_page_says(run, addresses, tmp_path):
    page = run / "report" / "patients" / "p1.html"
    told = open_page(page.parent, f"{driven(page, DRIVE)}#axial", tmp_path, (1000, 700), 20_000).told("driven")
    assert np.abs(np.array(told["peak"]) - HOT_MM).max() < 0.2  # the crosshair starts where map.json says
    moved = np.array(told["leafed"]) - told["first"]  # the first turn also goes from between two slices onto one
    assert abs(abs(moved[2]) - 4.0) < 0.2  # one axial slice, of 4 mm
    assert np.abs(moved[:2]).max() < 0.2
    assert told["zoomed"] is None
    assert told["zoom"] < 1  # turned towards oneself, the picture shrinks
    assert told["after"] == told["leafed"]
    assert abs(told["up"][2] - told["leafed"][2] - 4.0) < 0.2
    assert told["focused"]
    assert told["hidden"] == "false"
    assert told["height"] <= 700 - 100  # with its bar the canvas fits the window


def cyan(stage: np.ndarray) -> np.ndarray:
    return (stage[..., 0] < 60) & (stage[..., 1] > 190) & (stage[..., 2] > 230)


BOX_MM = np.array([30.0, 30.0, 28.0])  # of the tumour's voxels, whose outermost centres are 3 to 30, 0 to 27.5 and -10 to 14 mm


@pytest.mark.parametrize(("view", "across", "down"), [("axial", 0, 1), ("coronal", 0, 2)])
def test_the_tumours_outline_lies_where_the_tumour_lies_and_fills_no_plane_that_touches_it(see, view, across, down):
    stage = canvas(see(view).picture)  # the axial plane through the peak is the tumour's last
    line = cyan(stage)
    rows, columns = np.flatnonzero(line.any(axis=1)), np.flatnonzero(line.any(axis=0))
    width, height = len(columns) - 2, len(rows) - 2  # a line is two pixels wide
    assert width / height == pytest.approx(BOX_MM[across] / BOX_MM[down], rel=0.04)
    assert line[rows[0] + 4 : rows[-1] - 3, columns[0] + 4 : columns[-1] - 3].mean() < 0.01  # but for the corners
    for side in (line[:, columns[:2]], line[:, columns[-2:]], line[rows[:2]].T, line[rows[-2:]].T):
        assert side.any(axis=1).sum() > 0.75 * (height if len(side) == len(line) else width)
    grey = (np.ptp(stage, axis=-1) < 6) & (stage[..., 0] > 20) & (stage[..., 0] < 250)
    shown = np.argwhere(grey)
    (top, left), (bottom, right) = (np.percentile(shown, part, axis=0) for part in (0.2, 99.8))
    cut = np.sqrt(1 - ((HOT_MM / RADII_MM) ** 2)[({0, 1, 2} - {across, down}).pop()])  # the brain's ellipse in this plane
    middle_mm = np.array([16.5, 13.75, 2.0])
    for found, low, high, axis in ((columns.mean(), left, right, across), (rows.mean(), top, bottom, down)):
        expected = (low + high) / 2 - middle_mm[axis] / (RADII_MM[axis] * cut) * (high - low) / 2
        assert found == pytest.approx(expected, abs=0.03 * (high - low))


LEAF = """
const wait = (done) => new Promise((go) => { const ask = () => (done() ? go() : setTimeout(ask, 50)); ask(); });
(async () => {
  await wait(() => document.body.dataset.state === "ready" || document.body.dataset.state === "failed");
  const sheet = document.getElementById("lines");
  const press = (key) => document.getElementById("canvas").dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const drawn = () => {
    const { data } = sheet.getContext("2d").getImageData(0, 0, sheet.width, sheet.height);
    let pixels = 0;
    for (let n = 3; n < data.length; n += 4) pixels += data[n] > 127;
    return pixels;
  };
  const told = {};
  for (const [view, key] of [["axial", "ArrowDown"], ["sagittal", "ArrowLeft"]]) {
    document.querySelector(`[data-view="${view}"]`).click();
    told[view] = [drawn()];
    for (let n = 0; n < 14; n++) { press(key); told[view].push(drawn()); }
  }
  document.querySelector('[data-view="render"]').click();
  told.render = [drawn()];
  document.body.dataset.told = JSON.stringify(told);
})();
"""


@pytest.mark.slow
def test_every_slice_through_a_box_has_one_and_the_same_outline_and_slices_beside_it_have_none(run, addresses, tmp_path):
    page = run / "report" / "patients" / "p1.html"
    told = open_page(page.parent, f"{driven(page, LEAF)}#axial", tmp_path, (1000, 700), 20_000).told("told")
    held = {
        "axial": [True] * 7 + [False] * 8,
        "sagittal": [False] + [True] * 10 + [False] * 4,
    }  # from the peak downwards, leftwards
    assert {view: [pixels > 0 for pixels in told[view]] for view in held} == held
    for view, slices in held.items():
        pixels = {pixels for pixels, has in zip(told[view], slices, strict=True) if has}
        assert max(pixels) < 1.05 * min(pixels)  # neither end is filled
    assert told["render"] == [0]


@pytest.mark.slow
def test_scans_of_a_patient_without_maps_are_drawn_and_can_be_switched(run, addresses, tmp_path):
    page = run / "report" / "patients" / "p3.html"
    switch = """
    const ask = () => {
      if (document.body.dataset.state !== "ready") return setTimeout(ask, 50);
      const scan = document.getElementById("scan");
      document.body.dataset.told = JSON.stringify([...scan.options].map((one) => one.textContent));
      scan.value = "2"; scan.dispatchEvent(new Event("change"));
    };
    ask();"""
    seen = open_page(page.parent, f"{driven(page, switch)}#axial", tmp_path, TALL, 20_000)
    assert seen.told("told") == ["T1, prepared", "T1ce, prepared", "T2, prepared", "FLAIR, prepared"]
    assert 'data-scan="2"' in seen.body
    assert "data-violation" not in seen.body
    stage = canvas(seen.picture)
    assert ((stage.max(axis=-1) > 30) & (np.ptp(stage, axis=-1) < 6)).mean() > 0.05  # grey brain


def test_no_page_of_a_patient_breaks_a_rule_of_accessibility(run, addresses, tmp_path):
    for name, size in (("p1", (1400, 900)), ("p3", (400, 800))):
        (tmp_path / name).mkdir()
        assert violations(run / "report" / "patients" / f"{name}.html", tmp_path / name, size) == []


@pytest.mark.slow
def test_without_its_viewer_a_page_shows_the_picture_and_says_why(run, addresses, tmp_path):
    for folder in ("patients", "viewer"):
        (tmp_path / folder).mkdir()
    for file in (unquote(addresses["p2"]), "patients/p 2#.js", "viewer/patient.js", "viewer/patient.css"):
        shutil.copyfile(run / "report" / file, tmp_path / file)
    seen = open_page(tmp_path, addresses["p2"], tmp_path)
    assert 'data-state="failed"' in seen.body
    assert "viewer/niivue.umd.js of this report could not be read" in seen.dom
    red, _, blue = np.moveaxis(seen.picture, -1, 0)
    assert ((red > 180) & (red - blue > 60)).sum() > 50  # the picture's hot spot


@pytest.mark.slow
def test_what_the_policy_refuses_is_told_on_the_page(run, addresses, tmp_path):
    shutil.copytree(run / "report", tmp_path / "report")
    page = (run / "report" / unquote(addresses["p2"])).read_text()
    (tmp_path / "report" / "patients" / "x.html").write_text(
        page.replace("</body>", "<script>document.body.dataset.broken = 1</script></body>")
    )
    seen = open_page(tmp_path / "report", "patients/x.html", tmp_path)
    assert "data-broken" not in seen.body
    assert "data-violation=" in seen.body


def test_a_page_loads_nothing_but_itself_and_what_lies_beside_it(run, addresses):
    for name in ("p1", "p 2#", "p3"):
        page = (run / "report" / "patients" / f"{name}.html").read_text()
        assert "://" not in page
        loaded = set(re.findall(r"(?<![\w-])(?:src|action|data|poster)\s*=\s*[\"']?([^\"'>\s]+)", page))
        own = {f"{quote(name)}.js", f"{quote(name)}.webp", "../viewer/niivue.umd.js", "../viewer/patient.js", "x"}
        assert {link.split(",")[0] for link in loaded} <= {*own, "data:image/webp;base64"}
        policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[0]
        assert "default-src &#39;none&#39;" in policy
        assert not re.search(r"unsafe|http|\*|blob:", policy)
    assert "url(" not in (run / "report" / "viewer" / "patient.css").read_text()


def test_every_visit_gets_one_page_and_the_viewer_is_copied_once(run, addresses):
    assert addresses == {f"p1{HOSTILE}": "patients/p1.html", "p2": "patients/p%202%23.html", "p3": "patients/p3.html"}
    viewer = {"niivue.umd.js", "patient.js", "patient.css", "LICENSE", "LICENSES-BUNDLED"}
    assert {path.name for path in (run / "report" / "viewer").iterdir()} == viewer
    page = (run / "report" / "patients" / "p 2#.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert "fold 3 of repeat 1, counted from 1" in page
    assert "T1 10 %, T1ce 60 %, T2 10 %, FLAIR 20 %" in page
    for one in told(maps(run))[1].maps:
        assert f"said of {one.method} {html.escape(HOSTILE)}".replace("&quot;", "&#34;") in page
    assert "Not a medical device" in page
    assert 'rel="prev" href="../patients/p1.html"' in page
    assert 'rel="next" href="../patients/p3.html"' in page


def test_a_page_says_what_was_predicted_and_what_was_true(run, report, addresses):
    person, page = report[1].patients[2], (run / "report" / "patients" / "p3.html").read_text()
    for result in person.endpoints.values():
        assert f"<td>{notation.number(result.score)}</td>" in page
        assert f"<td>{run_facts.label_in_words(result)}</td>" in page
        assert run_facts.error_in_words(result) in page
    assert page.count("<polyline") == 2  # the patient's and the cohort's survival
    assert 'src="p3.webp"' in page


def test_a_visit_of_whom_no_scan_is_left_keeps_the_page_of_what_was_predicted(report, tmp_path):
    run, metrics = report
    found = patient_pages.visits(replace(run, qc=()), metrics)
    assert len(found) == len({visit_id(*pair) for pair in zip(run.predictions.patient, run.predictions.session, strict=True)})
    patient_pages.write_patient_pages(run, metrics, found[:2], tmp_path, report_files.report_templates(metrics))
    assert sorted(path.name for path in (tmp_path / "patients").iterdir()) == sorted(f"{one.name}.html" for one in found[:2])
    assert "<canvas" not in (tmp_path / "patients" / f"{found[0].name}.html").read_text()


def test_volumes_stay_while_nothing_that_they_show_has_changed(run, report, scanned, tmp_path):
    one = visits(run, report[1], scanned)[-1]
    patient_pages.write_patient_pages(report[0], report[1], [one], tmp_path, report_files.report_templates(report[1]))
    file = tmp_path / "patients" / "p3.js"
    before = file.stat().st_mtime_ns
    patient_pages.write_patient_pages(report[0], report[1], [one], tmp_path, report_files.report_templates(report[1]))
    assert file.stat().st_mtime_ns == before
    (tmp_path / "p00").mkdir()
    for name in ("tokens.safetensors", "qc.png"):
        shutil.copyfile(scanned / name, tmp_path / "p00" / name)
    record = json.loads((scanned / "patient.json").read_text())
    (tmp_path / "p00" / "patient.json").write_text(json.dumps({**record, "steps": [{"step": "another"}]}))
    patient_pages.write_patient_pages(
        report[0], report[1], [replace(one, prepared=tmp_path / "p00")], tmp_path, report_files.report_templates(report[1])
    )
    assert file.stat().st_mtime_ns > before


def test_a_map_of_zeros_is_shown_clear(run, tmp_path):
    home = tmp_path / "maps" / "p1"
    shutil.copytree(run / "maps" / "p1", home)
    facts = json.loads((home / "map.json").read_text())
    zeros = Volume(np.zeros(SHAPE, np.float32), AFFINE)
    facts["maps"][0] |= {"minimum": 0.0, "peak": 0.0}
    write(zeros, home / facts["maps"][0]["files"]["t1ce"])
    with pytest.raises(UnusablePatient, match="empty image"):
        read(home / facts["maps"][0]["files"]["t1ce"])
    (home / "map.json").write_text(json.dumps(facts))
    drawn = page_pictures.viewer_volumes(None, maps(tmp_path)[0], None, facts["maps"], "t1ce")
    first, second = (np.asarray(image(one["volume"]).dataobj) for one in drawn["maps"])
    assert first.shape == second.shape
    assert (first.max(), second.max()) == (0, 255)
    assert "none: this map is 0 everywhere" in dict(map_sentences.map_facts(facts, facts["maps"][0])).values()


def image(text: str) -> nib.Nifti1Image:
    return nib.Nifti1Image.from_bytes(gzip.decompress(base64.b64decode(text)))


def test_prepared_scans_lie_where_the_reference_lies(scanned: Path):
    stored = tokens.load(scanned / "tokens.safetensors")
    found = page_pictures.prepared_volumes(scanned)
    assert list(found) == list(schema.CHANNELS)
    for name, one in found.items():
        whole = tokens.to_volume(stored)[schema.CHANNELS.index(name)].astype(float)
        inside = one.array > 0
        grid_mm = ASKEW @ one.affine @ np.vstack([np.argwhere(inside).T, np.ones(inside.sum())])
        position = (np.linalg.inv(np.array(stored.grid.affine)) @ grid_mm)[:3]
        index = np.rint(position).astype(int)
        np.testing.assert_allclose(position, index, atol=1e-5)
        assert inside.sum() == (tokens.to_volume(stored) != 0).any(axis=0).sum()
        order = np.argsort(whole[tuple(index)])
        assert (np.diff(one.array[inside][order].astype(int)) >= 0).all()


def test_larger_voxels_are_means_and_lie_where_their_parts_lay():
    grid = Grid(edge=16, spacing_mm=0.5, patch=8)
    volume = np.random.default_rng(0).normal(size=(4, 16, 16, 16)).astype(np.float32)
    stored = tokens.from_volume(volume, np.ones((16, 16, 16), bool), grid, "-")
    made = page_pictures.coarse_tokens(stored)
    assert (made.grid.edge, made.grid.spacing_mm, made.grid.patch) == (4, 2.0, 2)
    parts = tokens.to_volume(stored).astype(np.float32).reshape(4, 4, 4, 4, 4, 4, 4)
    np.testing.assert_allclose(tokens.to_volume(made), parts.mean(axis=(2, 4, 6)), atol=1e-3)
    middle = np.array(grid.affine) @ [1.5, 1.5, 1.5, 1]
    np.testing.assert_allclose(np.array(made.grid.affine) @ [0, 0, 0, 1], middle)


def test_a_tumours_mask_lies_where_it_lay_and_holds_no_labels():
    mask = np.zeros((20, 22, 24), np.uint8)
    mask[5:12, 6:14, 7:15] = 4
    drawn = page_pictures.tumour_volume(Volume(mask, AFFINE))
    at = np.argwhere(drawn.array == 1) @ drawn.affine[:3, :3].T + drawn.affine[:3, 3]
    np.testing.assert_allclose(at, np.argwhere(mask) @ AFFINE[:3, :3].T + AFFINE[:3, 3])
    assert drawn.array.max() == 1


def test_equal_runs_give_equal_pages(run, report, scanned, addresses, tmp_path):
    patient_pages.write_patient_pages(
        report[0],
        report[1],
        visits(run, report[1], scanned, run / "mask.nii.gz"),
        tmp_path,
        report_files.report_templates(report[1]),
    )
    for file in (tmp_path / "patients").iterdir():
        assert file.read_bytes() == (run / "report" / "patients" / file.name).read_bytes()


def test_the_page_holds_scan_and_map_where_they_lie(run):
    scan, heat = head()
    box = page_pictures.bounding_box(scan.array.astype(np.float32))
    raw = gzip.decompress(
        base64.b64decode(
            page_pictures.base64_nifti(page_pictures.cropped(Volume(page_pictures.map_levels(heat.array), AFFINE), box))
        )
    )
    image = nib.Nifti1Image.from_bytes(raw)
    level = np.asarray(image.dataobj)
    hottest_mm = np.array(image.affine) @ [*np.unravel_index(level.argmax(), level.shape), 1]
    # The scale ends at 16, so that many voxels are hottest: the first found lies within the spot, not at its centre.
    assert np.abs(hottest_mm[:3] - HOT_MM).max() < 7
    assert image.header["descrip"] == b""
    assert level.shape < SHAPE
    assert (level > 0).sum() == (heat.array > 1.0001).sum()  # all that is more than an even share


def test_colour_and_opacity_are_those_of_the_picture():
    share = np.array([0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 40.0], np.float32).reshape(7, 1, 1)
    level = page_pictures.map_levels(share).ravel()
    height = np.array([0, 0, 0.25, 0.5, 0.75, 1, 1])
    np.testing.assert_allclose((level / 255) ** 2, height, atol=0.004)  # NiiVue's opacity at a level
    table = patient_pages.colour_table()
    drawn = np.stack([np.interp(level, table["I"], table[channel]) for channel in "RGB"], axis=-1)
    np.testing.assert_allclose(drawn, 255 * mpl.colormaps["inferno"](height)[:, :3], atol=3)


def test_the_vendored_viewer_is_the_one_its_readme_names():
    vendored = resources.files("mri_vit.report.pages") / "vendor" / "niivue"
    digest = hashlib.sha256((vendored / "niivue.umd.js").read_bytes()).hexdigest()
    assert digest in (vendored / "README.md").read_text()
    assert (vendored / "LICENSE").read_text().startswith("BSD 2-Clause License")


def test_a_published_scan_is_zero_outside_the_brain_and_keeps_its_order_inside():
    generator = np.random.default_rng(0)
    scan = Volume(generator.normal(300, 80, (12, 13, 14)).astype(np.float32), AFFINE)
    inside = np.zeros(scan.shape, bool)
    inside[3:9, 4:9, 5:11] = True
    brain = brain_only(scan, inside)
    assert np.array_equal(brain.array > 0, inside)
    assert np.array_equal(brain.affine, AFFINE)
    order = np.argsort(scan.array[inside])
    assert (np.diff(brain.array[inside][order].astype(int)) >= 0).all()
    assert (brain.array[inside].min(), brain.array[inside].max()) == (1, 255)
    elsewhere = scan.array + 1000 * ~inside
    assert np.array_equal(brain_only(Volume(elsewhere, AFFINE), inside).array, brain.array)  # the head has no say in it


def test_explain_publishes_the_brain_alone_on_the_scans_own_grid(tiny: Study, tmp_path, monkeypatch):
    generator = np.random.default_rng(1)
    affine = np.array([[-4.0, 0, 0, 45], [0, 5.0, 0, -70], [0, 0, 6.0, -40], [0, 0, 0, 1.0]])
    scan = Volume(generator.normal(300, 80, (22, 21, 16)).astype(np.float32), affine)  # noise where a face would be
    write(scan, tmp_path / "t1ce.nii.gz")
    patient = Patient("p00", dict.fromkeys(schema.CHANNELS, tmp_path / "t1ce.nii.gz"), {}, {})
    stays = np.eye(4).tolist()
    frames = {"to_grid": dict.fromkeys(schema.CHANNELS, stays)}
    record = {"config_sha256": "", "inputs": {}, "steps": [], **frames}
    (tiny.prepared / "p00" / "patient.json").write_text(json.dumps(record))
    torch.manual_seed(0)
    net = Network(tiny.model, tiny.grid, [Head(DEFAULT_ENDPOINTS[0], "binary")]).eval()
    explain(patient, net, tiny, tmp_path / "map", NetworkId("vit", 0, 0))
    listed = json.loads((tmp_path / "map" / "map.json").read_text())
    rollout = next(one for one in listed["maps"] if one["method"] == "rollout")
    brain, heat = (read(tmp_path / "map" / name) for name in (listed["brain"], rollout["files"]["t1ce"]))
    assert brain.shape == scan.shape
    np.testing.assert_allclose(brain.affine, affine, atol=1e-4)
    prepared = (tokens.to_volume(tokens.load(token_file(tiny.prepared, patient))) != 0).any(axis=0)
    index = np.moveaxis(np.indices(scan.shape), 0, -1)
    place_mm = index @ affine[:3, :3].T + affine[:3, 3]
    to_grid = np.linalg.inv(np.array(tiny.grid.affine))
    nearest = np.rint(place_mm @ to_grid[:3, :3].T + to_grid[:3, 3]).astype(int)
    within = ((nearest >= 0) & (nearest < tiny.grid.edge)).all(axis=-1)
    expected = within & prepared[tuple(np.moveaxis(nearest.clip(0, tiny.grid.edge - 1), -1, 0))]
    assert 100 < expected.sum() < expected.size / 2
    assert ((brain.array > 0) == expected).mean() > 0.999  # a voxel halfway between two may go to either
    assert np.array_equal(brain.array > 0, heat.array > 0)  # a rollout is positive all over the brain
    monkeypatch.setattr("mri_vit.explain.outputs.map_files.STRIPPED_ML", 1.0)  # now this brain is too large for one
    explain(patient, net, tiny, tmp_path / "withheld", NetworkId("vit", 0, 0))
    assert not list((tmp_path / "withheld").glob("*desc-brain_T1w*"))
    withheld = [
        Map("p00", tmp_path / name, json.loads((tmp_path / name / "map.json").read_text())) for name in ("map", "withheld")
    ]
    present = run_files.maps(tmp_path, tiny.explain.of_maps, [])[0]
    assert [shown.subject for shown in present] == ["p00"]  # what this version writes, the report reads
    assert [page_pictures.drawable(found, "t1ce") for found in withheld] == [True, False]
