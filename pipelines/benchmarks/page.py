"""How long a report's page is as it opens: what is folded counts its summary alone. Needs Chromium.

.venv/bin/python pipelines/benchmarks/page.py runs/demo/report/index.html
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

SCREEN = (1400, 900)  # pixels of a window on a laptop's screen, with room for the contents beside the page
MOST_SCREENS = 12  # of a report as it opens: what is added is folded, and what no reader uses is removed
ASK = "<script>document.body.dataset.height = document.documentElement.scrollHeight</script></body>"
HEIGHT = re.compile(r'data-height="(\d+)"')


def screens(page: Path) -> float | None:
    """How many screens of `SCREEN` a page has as it opens; None where there is no Chromium."""
    browser = shutil.which("chromium")
    if browser is None:
        return None
    # A copy, whose policy lets a script of ours say how tall it is.
    text = re.sub(r"script-src [^;\"]*", "script-src 'unsafe-inline'", page.read_text(encoding="utf-8"))
    with TemporaryDirectory() as folder:
        copy = Path(folder) / page.name
        copy.write_text(text.replace("</body>", ASK), encoding="utf-8")
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]
        command += [f"--user-data-dir={folder}/profile", f"--window-size={SCREEN[0]},{SCREEN[1]}"]
        command += ["--virtual-time-budget=5000", "--dump-dom", copy.as_uri()]
        drawn = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    found = HEIGHT.search(drawn)
    if not found:
        raise ValueError(f"{page}: the browser gave no height")
    return int(found[1]) / SCREEN[1]


if __name__ == "__main__":
    for asked in map(Path, sys.argv[1:]):
        long = screens(asked)
        print(f"{asked}: {'no Chromium' if long is None else f'{long:.1f} screens of {SCREEN[0]} × {SCREEN[1]} pixels'}")
