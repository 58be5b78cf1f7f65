"""A patient's page: what a reader sees of a prediction, in the words and numbers of its document, and in a browser."""

from __future__ import annotations

import copy
import html
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made.browser import open_page, violations
from made.prediction import EXAMPLE
from made.study import make_tiny
from PIL import Image

from mri_vit.finished import out_of_fold
from mri_vit.finished import predicted_patient as prediction_page
from mri_vit.finished.prediction_document import Prediction
from mri_vit.report.schema.metrics import Metrics
from mri_vit.settings import schema
from mri_vit.settings.schema import Study

pytestmark = pytest.mark.long(22)

HOSTILE = '</title><script>document.body.dataset.broken = 1</script><img src=x onerror="document.body.dataset.broken = 1">'


def rows() -> pd.DataFrame:
    """Out-of-fold rows of 40 patients for the example's endpoints."""
    generator = np.random.default_rng(0)
    truth = generator.random(40) < 0.5
    score = np.clip(0.5 + 0.3 * (truth - 0.5) + generator.normal(scale=0.2, size=40), 0, 1)
    people = {"patient": [f"R{index}" for index in range(40)], "model": "vit", "repeat": 0, "fold": 0}
    marker = pd.DataFrame({**people, "threshold": 0.5, "endpoint": "mgmt", "score": score, "truth": truth.astype(float)})
    times = {"time_days": generator.exponential(400, 40) + 1, "event": (generator.random(40) < 0.7).astype(float)}
    survival = pd.DataFrame({**people, "endpoint": "os", "score": generator.normal(size=40), **times})
    return pd.concat([marker, marker.assign(endpoint="pten", score=0.123456), survival])


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_tiny(tmp_path_factory.mktemp("prepared")).prepared / "p00"
    record = {"config_sha256": "", "inputs": {}, "steps": [], "to_grid": dict.fromkeys(schema.CHANNELS, np.eye(4).tolist())}
    (folder / "patient.json").write_text(json.dumps(record))
    return folder


def written(prepared: Path, folder: Path, patient: str = "P001") -> Path:
    """The example's page, without maps, whose files are not there."""
    told = copy.deepcopy(EXAMPLE) | {"patient": patient, "maps": None, "no_maps": "none were made"}
    folder.mkdir(exist_ok=True)
    Image.new("RGB", (400, 300)).save(folder / "qc.png")
    made, study = Prediction.model_validate(told), Study.model_construct(endpoints=schema.DEFAULT_ENDPOINTS, seed=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(out_of_fold, "reason_withheld", lambda *_: None)  # so that the marker's scores are calibrated
        found = out_of_fold.of_study(study, Metrics.model_construct(endpoints={}), rows())
    prediction_page.write_page(made, study, found, prepared, None, folder)
    return folder / "index.html"


@pytest.fixture(scope="module")
def home(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(prepared, tmp_path_factory.mktemp("page")).parent


@pytest.fixture(scope="module")
def words(home: Path) -> str:
    text = re.sub(r"<[^>]*>", " ", (home / "index.html").read_text(encoding="utf-8"))
    return re.sub(r"\s+", " ", html.unescape(text))


def test_a_shown_endpoint_has_its_probability_side_spread_and_the_run_s_own_figure(words):
    for said in (
        "67 % calibrated probability, 95 % interval 55 % to 79 %",
        "Called positive : 67 % is at least 50 %; the threshold of the run's own scores lies at 54 %.",
    ):
        assert said in words
    assert "Higher than 68 % of the run's 96 patients" in words
    assert "3 networks: 0.66 to 0.76" in words
    assert "AUC 0.880 [0.780, 0.940], 82 patients" in words


def test_what_is_withheld_says_why_and_shows_no_score_of_anybody(home, words):
    assert "Withheld. The run did not tell it from chance: indistinguishable from chance" in words
    card = words[words.index("PTEN alteration") : words.index("Overall survival")]
    assert "score" not in card
    page = (home / "index.html").read_text()
    assert page.count("<circle") == 2 * 40  # dots of the two endpoints that are shown
    assert page.count("<polyline") == 2


def test_doubts_come_before_any_number(words):
    doubt = "Outside of what the run was trained on: signal over noise of FLAIR."
    assert words.index(doubt) < words.index("67 %")
    assert "4.10 outside 15.20 12.10 to 18.40 4.2" in words


def test_survival_is_given_at_half_a_year_a_year_and_two(words):
    for said in ("Alive after 182 days: 85 %", "Alive after 365 days: 60 %", "Alive after 730 days: 20 %"):
        assert said in words


def test_what_was_read_and_how_stands_there(words):
    assert "T1, T1ce, T2, FLAIR, a mask of the tumour" in words
    assert "flair is noisy" in words
    assert "t1: negative intensities down to -12; background is 0" in words
    assert all(one["sha256"][:16] in words for one in EXAMPLE["run"]["weights"])


def test_the_folder_opens_alone_draws_the_scans_and_breaks_no_rule_of_accessibility(home, tmp_path):
    shutil.copytree(home, tmp_path / "sent")
    seen = open_page(tmp_path / "sent", "index.html", tmp_path, (900, 2400))
    assert 'data-state="ready"' in seen.body
    assert "data-violation" not in seen.body
    assert "://" not in (tmp_path / "sent" / "index.html").read_text()
    for size in ((1400, 900), (400, 800)):
        (tmp_path / str(size[0])).mkdir()
        assert violations(tmp_path / "sent" / "index.html", tmp_path / str(size[0]), size) == []


def test_a_patient_of_several_repeats_is_one_dot():
    one = rows().query("endpoint == 'mgmt'")
    repeated = pd.concat([one.assign(score=one.score - 0.1), one.assign(score=one.score + 0.1, repeat=1)])
    drawn, again = (out_of_fold.groups(schema.DEFAULT_ENDPOINTS[0], table)["score"] for table in (one, repeated))
    assert list(drawn) == list(again)
    assert sum(map(len, drawn.values())) == 40
    assert [score for group in drawn.values() for score in group] == pytest.approx([s for group in again.values() for s in group])


def test_a_hostile_id_stays_text(prepared, tmp_path):
    seen = open_page(written(prepared, tmp_path / "made", HOSTILE).parent, "index.html", tmp_path, (900, 2400))
    assert "data-broken" not in seen.body
    assert seen.dom.count("<script") == 3
