"""The service as its users meet it: a browser, programs, a killed worker, a full disk."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydicom
import pytest
from made.driven_browser import driven_browser
from made.prediction import comparable
from whole_road import mri_vit

from mri_vit import read_cohort

FOUR = ("t1", "t1ce", "t2", "flair")

pytestmark = [
    pytest.mark.long(90),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
]


@dataclass(frozen=True)
class Server:
    """A service in a process of its own."""

    address: str
    process: subprocess.Popen[str]
    token: str = ""

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        """The status and the answer: JSON read, anything else as bytes."""
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        request = urllib.request.Request(self.address + path, body, given, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                content, code, kind = answer.read(), answer.status, answer.headers["content-type"]
        except urllib.error.HTTPError as error:
            content, code, kind = error.read(), error.code, error.headers["content-type"]
        return code, json.loads(content) if kind == "application/json" else content

    def send(self, files: Mapping[str, Path | bytes], name: str = "", **headers: str) -> tuple[int, Any]:
        """Send a patient as a form."""
        edge, body = uuid.uuid4().hex, io.BytesIO()
        for field, file in files.items():
            content, called = (file, f"{field}.zip") if isinstance(file, bytes) else (file.read_bytes(), file.name)
            head = f'--{edge}\r\nContent-Disposition: form-data; name="{field}"; filename="{called}"\r\n\r\n'
            body.write(head.encode() + content + b"\r\n")
        if name:
            body.write(f'--{edge}\r\nContent-Disposition: form-data; name="name"\r\n\r\n{name}\r\n'.encode())
        body.write(f"--{edge}--\r\n".encode())
        return self.ask("/patients", "POST", body.getvalue(), content_type=f"multipart/form-data; boundary={edge}", **headers)

    def ended(self, patient: str, seconds: float = 120) -> dict[str, Any]:
        """The state of a patient once it is over."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            code, state = self.ask(f"/patients/{patient}")
            assert code == 200
            if state["state"] in ("done", "failed"):
                return state
            time.sleep(0.2)
        raise AssertionError(f"{state} after {seconds} s")

    def workers(self) -> list[int]:
        """Processes that the server started."""
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True).stdout
        return [int(line) for line in found.split()]


@contextmanager
def served(model: Path, folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A service on a free port."""
    program = Path(sys.executable).with_name("mri-vit")
    command = [sys.executable, "-u", program, "serve", model, "--port", "0", "--folder", folder, *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **(environment or {})}
    )
    try:
        assert process.stdout
        first = process.stdout.readline()
        found = re.search(r"(http://\S+?)/ ", first)
        assert found, first
        process.stdout.readline()
        token = ""
        if "--host" in options:
            token = process.stdout.readline().partition("token: ")[2].strip()
        yield Server(found[1].replace("0.0.0.0", "127.0.0.1"), process, token)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        finally:
            if process.stdout:
                process.stdout.close()


@pytest.fixture(scope="module")
def model(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("served")
    run = shutil.copytree(finished, home / "finished") / "run"  # where the export keeps what it measured of the run
    assert mri_vit("export", "model", run, "-o", home / "model") == 0
    return home / "model"


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(model, tmp_path_factory.mktemp("sent") / "folder", "--show-untrusted") as server:
        yield server


@pytest.fixture(scope="module")
def four(finished: Path) -> dict[str, Path]:
    return {name: file for name, file in read_cohort(finished / "others.csv")[0].scans.items() if file}


def test_a_browser_goes_from_the_scans_to_the_map_by_keyboard_alone_and_axe_finds_nothing(server, four, tmp_path):
    with driven_browser(tmp_path / "profile") as browser:
        browser.visit(server.address)
        assert "Not a medical device" in browser.text()
        assert browser.violations() == []
        visited = []
        for _ in range(12):
            browser.press("Tab")
            visited.append(browser.run("document.activeElement.id || document.activeElement.tagName"))
        assert visited[:8] == ["A", "name", *FOUR, "tumour_mask", "archive"]
        assert visited[8] == "BUTTON"
        for name, file in four.items():
            browser.choose(f"#{name}", [file])
        browser.run("document.querySelector('button').focus()")
        browser.press("Enter")
        browser.until("location.pathname.startsWith('/patients/')")
        assert browser.violations() == []
        browser.until("document.querySelector('#state')?.dataset.state === 'done'", 120)
        assert browser.violations() == []
        browser.picture(tmp_path / "done.png")
        browser.run("[...document.links].find((one) => one.href.endsWith('index.html')).focus()")
        browser.press("Enter")
        browser.until("document.body.dataset.state === 'ready'")
        assert "Patient patient" in browser.text()
        assert "shown only on request" in browser.text().lower()
        assert browser.violations() == []
        browser.visit(server.address + "/docs")
        assert browser.violations() == []


def test_a_program_gets_what_predict_writes(server: Server, four, model: Path, finished: Path, tmp_path: Path):
    code, job = server.send(four, "P7")
    assert code == 202
    done = server.ended(job["id"])
    assert done["state"] == "done"
    home = tmp_path / "P7"
    home.mkdir()
    for name, file in four.items():
        shutil.copy(file, home / f"{name}.nii.gz")
    assert mri_vit("predict", model, home, "-o", tmp_path / "out", "--show-untrusted") == 0
    expected = {name: content for name, content in comparable(tmp_path / "out").items() if name.startswith("P7/")}
    assert sum("_map.nii.gz" in name for name in expected) > 8
    for name, content in expected.items():
        code, found = server.ask(f"{done['status']}/result/{name.removeprefix('P7/')}")
        assert code == 200
        if name.endswith((".nii.gz", ".png")):
            assert found == content, name
    assert server.ask(done["prediction"])[1]["endpoints"] == json.loads(expected["P7/prediction.json"])["endpoints"]
    code, archive = server.ask(done["dicom"])
    assert code == 200
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        names = packed.namelist()
        assert {"summary.dcm", "report.dcm", "map-1-rollout.dcm"} <= set(names)
        assert str(pydicom.dcmread(io.BytesIO(packed.read("summary.dcm"))).PatientName) == "ANONYMOUS"
    for path in ("../job.json", "%2e%2e/%2e%2e/job.json", "maps/../../../job.json", "nothing"):
        assert server.ask(f"{done['status']}/result/{path}")[0] == 404
    assert server.ask(done["status"], "DELETE")[0] == 204
    assert server.ask(done["status"])[0] == 404


@pytest.mark.parametrize(
    ("files", "code", "words"),
    [
        ({}, 400, "no file was sent"),
        ({"t3": b"x"}, 400, "unknown field 't3'"),
        ({"archive": b"no zip"}, 400, "no zip archive"),
    ],
)
def test_what_is_refused_at_once_is_refused_in_words(server: Server, files, code, words):
    found, answer = server.send(files)
    assert (found, words in answer["error"]) == (code, True)
    assert "/tmp" not in answer["error"]


def test_a_patient_who_cannot_be_predicted_fails_in_words_and_the_next_is_done(server: Server, four, tmp_path: Path):
    bad = tmp_path / "bad.nii.gz"
    bad.write_bytes(b"nothing")
    _, lacking = server.send({name: file for name, file in four.items() if name != "t2"}, "lacking")
    _, damaged = server.send({**four, "t1": bad}, "damaged")
    _, good = server.send(four, "good")
    for job, words in ((lacking, "need t2 as well"), (damaged, "t1.nii.gz")):
        state = server.ended(job["id"])
        assert state["state"] == "failed"
        assert words in state["words"]
        assert "/tmp" not in state["words"]
    assert server.ended(good["id"])["state"] == "done"
    code, health = server.ask("/health")
    assert (code, health["status"]) == (200, "ready")


def test_other_sites_other_names_and_large_bodies_are_kept_out(server: Server, four):
    code, answer = server.ask("/patients", Host="evil.example")
    assert code == 400
    assert "not called evil.example" in answer["error"]
    assert server.send(four, Origin="http://evil.example")[0] == 403
    assert server.send(four, Sec_Fetch_Site="cross-site")[0] == 403
    code, answer = server.ask(
        "/patients", "POST", b"x", content_length=str(2**40), content_type="multipart/form-data; boundary=x"
    )
    assert code == 413
    assert "GiB" in answer["error"]


@pytest.mark.parametrize("patients", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_queued_patients_of_three_senders_survive_the_death_of_worker_and_server(model, four, tmp_path, patients):
    sent: list[dict[str, Any]] = []
    with served(model, tmp_path / "folder", "--show-untrusted") as server:

        def send(names: list[str]) -> None:
            for name in names:
                code, job = server.send(four, name)
                assert code == 202
                sent.append(job)

        names = [f"P{number}" for number in range(patients)]
        senders = [threading.Thread(target=send, args=(names[start::3],)) for start in range(3)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        assert len(sent) == patients
        while not any(server.ask(job["status"])[1]["state"] == "running" for job in sent):
            time.sleep(0.05)
        (worker,) = server.workers()
        assert all(not path.stat().st_mode & 0o077 for path in (tmp_path / "folder").rglob("*") if path.is_file())
        os.kill(worker, signal.SIGKILL)
        while server.workers() in ([], [worker]):
            time.sleep(0.05)
        server.ended(sent[0]["id"])
        server.process.kill()  # at once, in the middle of a patient
        server.process.wait()
    with served(model, tmp_path / "folder", "--show-untrusted") as server:
        states = [server.ended(job["id"], 60 + 10 * patients) for job in sent]
        assert [state["state"] for state in states] == ["done"] * patients
        numbers = {json.dumps(server.ask(state["prediction"])[1]["endpoints"], sort_keys=True) for state in states}
        assert len(numbers) == 1, "the same scans have the same scores, whoever was killed"


def test_a_full_disk_refuses_in_words_and_loses_nobody(model: Path, four, tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=30m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        with served(model, disk / "folder", "--show-untrusted") as server:
            code, answer = server.send(four)
            assert code == 507
            assert "disk" in answer["error"]
            assert server.ask("/patients")[1] == []
            assert {entry.name for entry in (disk / "folder").iterdir()} == {".lock", ".spool"}
    finally:
        subprocess.run(["umount", disk], check=True)


def test_any_other_address_asks_for_the_token(model: Path, four, tmp_path: Path):
    with served(
        model, tmp_path / "folder", "--host", "0.0.0.0", environment={"MRI_VIT_TOKEN": "a-token-of-25-characters!"}
    ) as server:
        assert server.token == "that of MRI_VIT_TOKEN", "it is not printed where the user gave it"
        token = "a-token-of-25-characters!"
        assert server.ask("/patients")[0] == 401
        assert server.send(four)[0] == 401
        assert server.ask("/patients", Authorization="Bearer another")[0] == 401
        assert server.ask("/patients", Authorization=f"Bearer {token}")[0] == 200
        code, health = server.ask("/health")
        assert code == 200
        assert list(health) == ["status"]
        with driven_browser(tmp_path / "profile") as browser:
            browser.visit(server.address)
            assert browser.violations() == []
            for given, seen in (
                ("wrong", "document.querySelector('[role=alert]')"),
                (token, "document.querySelector('#archive')"),
            ):
                browser.run(f"document.querySelector('#token').value = {json.dumps(given)}")
                browser.run("document.querySelector('form').submit()")
                browser.until(f"{seen} !== null && document.readyState === 'complete'")


def test_what_is_no_model_or_no_free_address_is_refused(model: Path, finished: Path, server: Server, tmp_path: Path, capsys):
    assert mri_vit("serve", finished / "run", "--folder", tmp_path / "a") == 2
    assert "expected a folder of `mri-vit export model`" in capsys.readouterr().err
    port = server.address.rpartition(":")[2]
    assert mri_vit("serve", model, "--port", port, "--folder", tmp_path / "a") == 2
    assert "choose another --port" in capsys.readouterr().err
