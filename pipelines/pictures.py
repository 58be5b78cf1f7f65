"""The pictures of README and documentation, from the report and maps of `make demo`.

.venv/bin/python pipelines/pictures.py     (as `make pictures` does, after `make demo`; a few seconds; needs Chromium or Chrome)
"""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

from mri_vit import style

ROOT = Path(__file__).parents[1]
RUN = ROOT / "runs" / "demo"
PREPARED = ROOT / "runs" / "demo-cohort" / "prepared"
PICTURES = ROOT / "docs" / "pictures"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENT = "demo-001"  # the first of the cohort, who was not chosen for the picture
WIDTH = 1100  # pixels of a committed picture
WINDOW = 1400  # pixels of the browser's: contents beside four cards
FIRST_SCREEN = 870  # pixels from the top of the report: title, contents and a card for each endpoint
MAPS_SCREEN = 860  # pixels from the heading of the maps: how far each method can be believed
# the report's maps without the rest
ALONE = "<style>.device, nav, header, section:not(#maps) { display: none } .layout { display: block }</style></head>"
FOLDED, OPEN = '<section id="maps">\n<details class="part">', '<section id="maps">\n<details class="part" open>'
TWO_ROWS = 0.66  # of an overlay's height: the scan, and the map over it
COLOURS = 128  # of a picture's palette, which keeps a file small and its text sharp
BLOCKS = 11  # of ViT-B whose matrices rollout needs: of the last one's a row
LARGEST = 200_000  # bytes of a committed picture


def main() -> None:
    """Write docs/pictures; the report and the overlays of the demo must be there."""
    page = RUN / "report" / "index.html"
    if not page.exists():
        sys.exit(f"{page}: no such file; run `make demo` first")
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if not browser:
        sys.exit(
            f"no browser to picture the report with: looked for {', '.join(BROWSERS)}; install Chromium (apt install chromium)"
        )
    text = page.read_text(encoding="utf-8")
    overlays = RUN / "maps" / PATIENT
    name = f"sub-{PATIENT.replace('-', '')}"  # as BIDS has it
    figures = RUN / "report" / "figures"
    made = {
        "report": screenshot(browser, text, WINDOW, FIRST_SCREEN),
        "report_maps": screenshot(browser, text.replace("</head>", ALONE, 1).replace(FOLDED, OPEN, 1), WIDTH, MAPS_SCREEN),
        "map": upper(Image.open(overlays / f"{name}_desc-rollout_overlay.png")),
        "map_mgmt": upper(Image.open(overlays / f"{name}_desc-gradientAttentionMgmt_overlay.png")),
        "prepared": Image.open(PREPARED / PATIENT / "qc.png"),
        "roc": Image.open(figures / "roc_mgmt_vit.png"),
        "survival": Image.open(figures / "km_os_vit.png"),
    }
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "rollout_by_tokens.svg").write_bytes(of_rollout())
    for picture, image in made.items():
        file = PICTURES / f"{picture}.png"
        small = image.convert("RGB")
        small.thumbnail((WIDTH, WIDTH))
        small.quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
        size = file.stat().st_size
        print(f"{file.relative_to(ROOT)}: {small.width} × {small.height}, {size / 1000:.0f} kB")
        if size > LARGEST:
            sys.exit(f"{file}: {size} bytes; at most {LARGEST} are committed")


def of_rollout() -> bytes:
    """Time and memory of a pass and of rollout without matrices, by tokens, as SVG, from `bench.py --part tokens`."""
    figures = pd.read_csv(PICTURES / "rollout_by_tokens.csv")
    figure = Figure(figsize=(2 * style.WIDTH, 3.2), layout="constrained")
    panels = {"s": ("seconds on two threads", (1, 10, 100)), "gb": ("memory of the process, GB", (0.1, 1, 10))}
    for axes, (unit, (label, ticks)) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        for what, colour, name in (
            ("pass", style.BLUE, "a forward pass"),
            ("rollout", style.VERMILLION, "rollout, rows made again"),
        ):
            axes.plot(figures.tokens, figures[f"{what}_{unit}"], "o-", color=colour, label=name)
        if unit == "gb":
            held = BLOCKS * (figures.tokens + 1) ** 2 * 4 / 1e9
            axes.plot(figures.tokens, held, "--", color=style.GREY, label="all matrices alone")
        axes.set(xscale="log", yscale="log", xlabel="tokens of ViT-B", ylabel=label)
        axes.set_xticks(figures.tokens, [f"{tokens:,}" for tokens in figures.tokens], rotation=30)
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.legend(loc="upper left", fontsize=8)
    return style.to_bytes(figure, "svg")


def screenshot(browser: str, text: str, width: int, height: int) -> Image.Image:
    """What the browser shows of the top of an HTML page, as an image of `width` × `height`."""
    with TemporaryDirectory() as folder:
        page, file = Path(folder) / "page.html", Path(folder) / "page.png"
        page.write_text(text, encoding="utf-8")
        window = f"--window-size={width},{height}"
        command = [browser, "--headless", "--no-sandbox", "--hide-scrollbars", f"--screenshot={file}", window, page.as_uri()]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if not file.exists():
            sys.exit(f"{browser} made no picture of the report:\n{ended.stderr}")
        return Image.open(file).convert("RGB")


def upper(overlay: Image.Image) -> Image.Image:
    """The upper two of an overlay's three rows."""
    return overlay.crop((0, 0, overlay.width, round(TWO_ROWS * overlay.height)))


if __name__ == "__main__":
    main()
