"""Headless Chromium: a page on disk in, what it made of itself out."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image


@dataclass(frozen=True)
class Seen:
    """What the browser made of a page: its elements as text, and its picture."""

    dom: str
    picture: np.ndarray  # rows, columns, RGB

    @property
    def body(self) -> str:
        found = re.search(r"<body[^>]*>", self.dom)
        assert found, self.dom[:500]
        return found.group()

    def told(self, name: str) -> Any:
        """What a script left on the page as JSON in the body's `data-<name>`."""
        found = re.search(rf'data-{name}="([^"]*)"', self.body)
        assert found, self.body
        return json.loads(html.unescape(found[1]))


def open_page(home: Path, address: str, scratch: Path, size: tuple[int, int] = (520, 960), milliseconds: int = 8000) -> Seen:
    """Open a page of a folder on disk, drawing in software; skips where there is no Chromium."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("Chromium is not installed")
    command = [
        browser,
        *("--headless", "--no-sandbox", "--disable-gpu-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"),
        *("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"),
        *("--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *(f"--user-data-dir={scratch / 'profile'}", f"--window-size={size[0]},{size[1]}"),
        *(f"--virtual-time-budget={milliseconds}", "--dump-dom", f"--screenshot={scratch / 'page.png'}"),
        f"{home.as_uri()}/{address}",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)
    try:
        dom, _ = process.communicate(timeout=90)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: this browser and its children alone
            process.communicate()
    with Image.open(scratch / "page.png") as picture:
        return Seen(dom, np.asarray(picture.convert("RGB")).astype(int))


def driven(page: Path, script: str) -> str:
    """A copy of a page beside it that runs a script of its own last; its name. The policy that forbids it is loosened."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"script-src [^;\"]*", "script-src 'self' 'unsafe-inline'", text)
    copy = page.with_name(f"driven-{page.name}")
    page.with_name("driver.js").write_text(script, encoding="utf-8")
    copy.write_text(text.replace("</body>", '<script src="driver.js"></script></body>'), encoding="utf-8")
    return copy.name


def violations(page: Path, scratch: Path, size: tuple[int, int] = (1400, 900)) -> list[str]:
    """What axe-core finds wrong with a page that is open everywhere: rule, and the elements that break it."""
    axe = (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    ask = """
    addEventListener("load", async () => {
      for (const part of document.querySelectorAll("details")) part.open = true;
      const found = await axe.run(document, { resultTypes: ["violations"] });
      const shown = (one) => one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ");
      const told = found.violations.map((one) => one.id + ": " + shown(one));
      document.body.dataset.violations = JSON.stringify(told);
    });"""
    return open_page(page.parent, driven(page, axe + ask), scratch, size, 30_000).told("violations")
