"""Web: the address of a DICOMweb server on this machine goes in; its instances, as files in a folder, come out.

Asked are QIDO-RS, for what there is, and WADO-RS, for one instance at a time as it is stored (DICOM PS3.18, 10.6 and 10.4).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.client import HTTPMessage
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from mri_vit.errors import OutOfResource, UsageError

LOOPBACK = ("127.0.0.1", "::1", "localhost")  # nothing here goes out to a network; for a server elsewhere there are tunnels
PAGE = 500  # studies or instances per question
TIMEOUT_S = 60
STUDY, SERIES, INSTANCE = "0020000D", "0020000E", "00080018"  # UIDs, by tag
UID = re.compile(r"[0-9.]{1,64}")  # it becomes part of an address


class _NoRedirect(HTTPRedirectHandler):
    """An answer that leads elsewhere is an error: elsewhere may be outside."""

    def redirect_request(self, *_: Any) -> None:
        return None


def fetch(url: str, folder: Path) -> int:
    """Write every instance that the server at `url` has into `folder`, under names of our own; how many there are.

    Raises
    ------
    UsageError
        The address is not on this machine, or no DICOMweb server answers there.
    OutOfResource
        The server stops answering on the way.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.hostname not in LOOPBACK:
        raise UsageError(f"{url}: expected http://127.0.0.1:PORT/…, a server on this machine (for another, open a tunnel)")
    base = url.rstrip("/")
    try:
        studies = list(_found(f"{base}/studies", (STUDY,)))
    except (OSError, ValueError) as error:
        raise UsageError(f"{url}: no DICOMweb server answers there ({error})") from None
    count = 0
    try:
        for (study,) in studies:
            for series, instance in _found(f"{base}/studies/{study}/instances", (SERIES, INSTANCE)):
                count += 1
                address = f"{base}/studies/{study}/series/{series}/instances/{instance}"
                (folder / f"{count:08}.dcm").write_bytes(_instance(address))
    except (URLError, TimeoutError, ConnectionError, ValueError) as error:
        raise OutOfResource(f"{url}: the server stopped answering after {count} instances ({error})") from None
    return count


def _found(address: str, tags: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The UIDs by `tags` of all that a question finds, page by page until one brings nothing new."""
    seen: set[tuple[str, ...]] = set()
    while True:
        body, _ = _get(f"{address}?limit={PAGE}&offset={len(seen)}", "application/dicom+json")
        page = {tuple(_uid(one, tag) for tag in tags) for one in json.loads(body or b"[]")} - seen
        if not page:
            return
        seen |= page
        yield from sorted(page)


def _uid(found: dict[str, Any], tag: str) -> str:
    value = str(found.get(tag, {}).get("Value", [""])[0])
    if not UID.fullmatch(value):
        raise ValueError(f"an answer without a UID in {tag}")
    return value


def _instance(address: str) -> bytes:
    """The file of one instance, out of the one part of a multipart answer."""
    body, headers = _get(address, 'multipart/related; type="application/dicom"; transfer-syntax=*')
    boundary = headers.get_param("boundary")
    if headers.get_content_type() != "multipart/related" or not isinstance(boundary, str):
        raise ValueError(f"an answer of {headers.get_content_type()}; expected multipart/related")
    start = body.index(b"\r\n\r\n", body.index(b"--" + boundary.encode())) + 4
    return body[start : body.rindex(b"\r\n--" + boundary.encode())]


def _get(address: str, accept: str) -> tuple[bytes, HTTPMessage]:
    opener = build_opener(ProxyHandler({}), _NoRedirect())  # no proxy, through which it would leave the machine
    with opener.open(Request(address, headers={"Accept": accept}), timeout=TIMEOUT_S) as answer:
        return answer.read(), answer.headers
