"""A real Orthanc on loopback, with storage of its own: an archive to try exports with; and HTTP requests that no proxy sees."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mri_vit.errors import UsageError

PLUGIN = Path("/usr/share/orthanc/plugins/libOrthancDicomWeb.so")  # Debian's orthanc-dicomweb
AET = "ORTHANC"
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Archive:
    """A running Orthanc."""

    http: int
    dicom: int

    def get(self, path: str, accept: str = "application/dicom+json") -> tuple[int, bytes]:
        """Status and body of an answer of DICOMweb."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.http}/dicom-web/{path}", headers={"Accept": accept})
        with OPENER.open(request, timeout=60) as answer:
            return answer.status, answer.read()

    def found(self, path: str) -> list[dict[str, Any]]:
        return json.loads(self.get(path)[1] or b"[]")

    def store(self, files: list[Path]) -> int:
        """STOW-RS; the status."""
        parts = [b"--b0\r\nContent-Type: application/dicom\r\n\r\n" + file.read_bytes() + b"\r\n" for file in files]
        headers = {"Content-Type": 'multipart/related; type="application/dicom"; boundary=b0', "Accept": "application/dicom+json"}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http}/dicom-web/studies", b"".join(parts) + b"--b0--\r\n", headers
        )
        with OPENER.open(request, timeout=120) as answer:
            return answer.status

    def instance(self, study: str, series: str, uid: str) -> bytes:
        """WADO-RS: the file of an instance."""
        accept = 'multipart/related; type="application/dicom"; transfer-syntax=*'
        _, body = self.get(f"studies/{study}/series/{series}/instances/{uid}", accept)
        start = body.index(b"\r\n\r\n") + 4
        return body[start : body.rindex(b"\r\n--")]


@contextmanager
def orthanc(home: Path) -> Iterator[Archive]:
    """An empty Orthanc. Raises UsageError where Debian's packages are not installed."""
    program = shutil.which("Orthanc") or shutil.which("orthanc", path="/usr/sbin:/usr/bin")
    if not program or not PLUGIN.exists():
        raise UsageError("Orthanc and its DICOMweb are not installed; `make pacs` installs them")
    ports = _free_ports()
    settings = {
        "Name": "mri-vit",
        "StorageDirectory": str(home / "storage"),
        "IndexDirectory": str(home / "index"),
        "HttpPort": ports[0],
        "DicomPort": ports[1],
        "DicomAet": AET,
        "DicomAlwaysAllowStore": True,
        "RemoteAccessAllowed": False,
        "AuthenticationEnabled": False,
        "Plugins": [str(PLUGIN)],
    }
    (home / "orthanc.json").write_text(json.dumps(settings))
    server = subprocess.Popen([program, str(home / "orthanc.json")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for port in ports:
            _wait_for(port)
        yield Archive(*ports)
    finally:
        server.terminate()
        server.wait(30)


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def _wait_for(port: int) -> None:
    for _ in range(300):
        with socket.socket() as there:
            if there.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("Orthanc does not answer")
