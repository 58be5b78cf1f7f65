"""A headless Chromium that a test drives: it visits pages of a server, chooses files, presses keys, and says what it shows."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

WAIT_S = 60.0


class DrivenBrowser:
    """One tab. Commands are those of the DevTools protocol, over pipes: JSON with a zero byte behind each."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._left, self._number = to, back, b"", 0
        (tab, *_) = [one for one in self.ask("Target.getTargets", root=True)["targetInfos"] if one["type"] == "page"]
        self._session = self.ask("Target.attachToTarget", root=True, targetId=tab["targetId"], flatten=True)["sessionId"]
        self.ask("Page.enable")
        self.ask("DOM.enable")

    def ask(self, method: str, root: bool = False, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if not root:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            read = os.read(self._back, 2**20)
            assert read, "the browser has ended"
            self._left += read
        first, _, self._left = self._left.partition(b"\0")
        return json.loads(first)

    def run(self, script: str) -> Any:
        """What an expression of JavaScript in the page comes to; a promise is waited for."""
        found = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def visit(self, address: str) -> None:
        self.ask("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def until(self, script: str, seconds: float = WAIT_S) -> Any:
        """Wait until an expression is true; its value."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if found := self.run(script):
                    return found
            except AssertionError:  # between two pages
                pass
            time.sleep(0.1)
        raise AssertionError(f"{script} did not come true in {seconds} s: {self.text()[:2000]}")

    def text(self) -> str:
        return str(self.run("document.body.innerText"))

    def choose(self, selector: str, files: Sequence[Path]) -> None:
        """Choose files in an input."""
        root = self.ask("DOM.getDocument")["root"]["nodeId"]
        node = self.ask("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.ask("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def press(self, key: str) -> None:
        """Press and release a key."""
        code, text = {"Tab": (9, ""), "Enter": (13, "\r")}[key]
        for kind in ("keyDown", "keyUp"):
            about = {"key": key, "code": key, "windowsVirtualKeyCode": code, **({"text": text} if text else {})}
            self.ask("Input.dispatchKeyEvent", False, type=kind, **about)

    def violations(self) -> list[str]:
        """What axe-core finds wrong with the page."""
        axe = (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
        self.until("document.readyState === 'complete'")
        self.run(axe + "; 0")
        asked = """axe.run(document, { resultTypes: ["violations"] }).then((found) => found.violations.map(
          (one) => one.id + ": " + one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")))"""
        return self.run(asked)

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]))


@contextmanager
def driven_browser(profile: Path, size: tuple[int, int] = (1000, 900)) -> Iterator[DrivenBrowser]:
    """A browser with a new profile, drawing in software; skips where there is no Chromium."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("Chromium is not installed")
    its_in, our_out = os.pipe()
    our_in, its_out = os.pipe()
    command = [
        browser,
        *("--headless", "--no-sandbox", "--disable-gpu-sandbox", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
        *("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"),
        *("--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *(f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}", "about:blank"),
    ]
    process = subprocess.Popen(  # it reads from 3 and writes to 4
        ["bash", "-c", f'exec "$@" 3<&{its_in} 4>&{its_out}', "bash", *command],
        pass_fds=(its_in, its_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(its_in)
    os.close(its_out)
    try:
        yield DrivenBrowser(our_out, our_in)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its own session: this browser and its children alone
        process.wait()
        os.close(our_in)
        os.close(our_out)
