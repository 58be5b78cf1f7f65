"""DICOMweb on loopback: a small server of the test's own, and a real Orthanc where it is installed."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest
from made import dicom
from pydicom import dcmread

from mri_vit.errors import OutOfResource, UsageError
from mri_vit.importers.dicom import importer

PLUGIN = Path("/usr/share/orthanc/plugins/libOrthancDicomWeb.so")  # Debian's orthanc-dicomweb


class Archive(BaseHTTPRequestHandler):
    """As much of QIDO-RS and WADO-RS as an import asks for."""

    files: dict[tuple[str, str, str], bytes]
    lost: bool

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        parts = address.path.strip("/").split("/")
        if parts == ["away", "studies"]:
            self.send_response(302)
            self.send_header("Location", "/studies")
            self.end_headers()
        elif parts[-1] in ("studies", "instances"):
            page = parse_qs(address.query)
            start, count = int(page["offset"][0]), int(page["limit"][0])
            keys = sorted(self.files)
            found = sorted({key[0] for key in keys}) if parts[-1] == "studies" else [key for key in keys if key[0] == parts[1]]
            self._send(200, "application/dicom+json", json.dumps([_json(one) for one in found[start : start + count]]).encode())
        elif self.lost:
            self._send(500, "text/plain", b"")
        else:
            content = self.files[parts[1], parts[3], parts[5]]
            part = b"--b1\r\nContent-Type: application/dicom\r\n\r\n" + content + b"\r\n--b1--\r\n"
            self._send(200, 'multipart/related; type="application/dicom"; boundary=b1', part)

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silent."""


def _json(found: str | tuple[str, str, str]) -> dict[str, object]:
    tags = (importer.STUDY_TAG, importer.SERIES_TAG, importer.INSTANCE_TAG)
    uids = (found,) if isinstance(found, str) else found
    return {tag: {"vr": "UI", "Value": [uid]} for tag, uid in zip(tags, uids, strict=False)}


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[str]:
    """The address of a server that has two series of one study."""
    Archive.files, Archive.lost = {}, False
    for words in ("t2 tse", "t2 flair"):
        for path in dicom.write_series(tmp_path / "in" / words, SeriesDescription=words, StudyInstanceUID="1.2.3"):
            one = dcmread(path)
            Archive.files[one.StudyInstanceUID, one.SeriesInstanceUID, one.SOPInstanceUID] = path.read_bytes()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Archive)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_import_by_dicomweb_gives_what_an_import_of_the_files_gives(
    tmp_path: Path, archive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, "PAGE_SIZE", 5)  # so that there are pages
    by_files = importer.read(tmp_path / "in", tmp_path / "a")
    with importer.files_of(f"{archive}/", tmp_path / "b") as folder:
        by_web = importer.read(folder, tmp_path / "b", tmp_path / "a.key")
    assert set(by_files.visits[0].scans) == {"t2", "flair"}
    _assert_alike(tmp_path / "a", tmp_path / "b")
    assert not by_web.left_out
    assert not list(tmp_path.glob(".*"))


def _assert_alike(one: Path, other: Path) -> None:
    """Two cohorts, byte for byte."""
    names = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(other) for path in other.rglob("*") if path.is_file())
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes()


@pytest.mark.parametrize("url", ["http://pacs.example.org/dicom-web", "file:///etc", "http://127.0.0.1.example.org", "nothing"])
def test_an_address_outside_this_machine_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(UsageError, match="a server on this machine"):
        importer.fetch_dicomweb(url, tmp_path)


def test_a_server_that_leads_elsewhere_or_is_not_there_is_refused(tmp_path: Path, archive: str) -> None:
    for url in (f"{archive}/away", "http://127.0.0.1:9"):
        with pytest.raises(UsageError, match="no DICOMweb server answers"):
            importer.fetch_dicomweb(url, tmp_path)


def test_a_server_that_stops_on_the_way_is_a_lack_and_no_short_cohort(tmp_path: Path, archive: str) -> None:
    Archive.lost = True
    with pytest.raises(OutOfResource, match="stopped answering"), importer.files_of(archive, tmp_path / "b"):
        pass
    assert not list(tmp_path.glob(".*"))
    assert not (tmp_path / "b").exists()


@pytest.mark.slow
def test_a_round_trip_through_orthanc_changes_nothing(tmp_path: Path) -> None:
    program = shutil.which("Orthanc") or shutil.which("orthanc", path="/usr/sbin:/usr/bin")
    if not program:
        pytest.skip("orthanc is not installed (Debian: apt-get install orthanc orthanc-dicomweb)")
    files = []
    for words in ("t2 tse", "t2 flair"):
        files += dicom.write_series(tmp_path / "in" / words, SeriesDescription=words, StudyInstanceUID="1.2.3")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "StorageDirectory": str(tmp_path / "storage"),
        "IndexDirectory": str(tmp_path / "index"),
        "HttpPort": port,
        "DicomServerEnabled": False,
        "RemoteAccessAllowed": False,
        "AuthenticationEnabled": False,
        "Plugins": [str(PLUGIN)] if PLUGIN.exists() else [],
    }
    (tmp_path / "orthanc.json").write_text(json.dumps(settings))
    server = subprocess.Popen([program, str(tmp_path / "orthanc.json")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        for path in files:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/instances", path.read_bytes(), timeout=10).close()
        importer.read(tmp_path / "in", tmp_path / "a")
        if PLUGIN.exists():
            with importer.files_of(f"http://127.0.0.1:{port}/dicom-web", tmp_path / "b") as folder:
                importer.read(folder, tmp_path / "b", tmp_path / "a.key")
            _assert_alike(tmp_path / "a", tmp_path / "b")
    finally:
        server.terminate()
        server.wait(30)
    importer.read(tmp_path / "storage", tmp_path / "c", tmp_path / "a.key")
    _assert_alike(tmp_path / "a", tmp_path / "c")


def _wait_for(port: int) -> None:
    for _ in range(100):
        with socket.socket() as there:
            if there.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("Orthanc does not answer")
