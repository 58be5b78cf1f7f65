"""Train the tumour finder, or evaluate it on patients with drawn masks.

.venv/bin/python pipelines/finder.py train     # on random heads alone, no real scan; 25 to 45 minutes on two cores
.venv/bin/python pipelines/finder.py evaluate ../shared/data/tumours/* ../shared/data/tumours_two/*
"""

from pathlib import Path

import cyclopts
import pandas as pd
from tumour_finder.evaluation import evaluate
from tumour_finder.training import train_finder

app = cyclopts.App(help=__doc__)


@app.command
def train(steps: int = 2_000, out: Path = Path("mri_vit/prepare/finder.safetensors")) -> None:
    """Train for some STEPS of two heads each, and write the weights."""
    train_finder(steps, out)


@app.command(name="evaluate")
def show(*folders: Path, scratch: Path = Path("runs/finder")) -> None:
    """Print each patient's figures, from a threshold chosen on the others, and the medians; SCRATCH keeps prepared patients."""
    table = pd.DataFrame(evaluate(list(folders), scratch))
    print(table.round(3).to_string(index=False))
    figures = table.groupby("way")[["dice", "volume", "shares"]].agg(["median", "min", "max"])
    print(figures.round(3).to_string())


if __name__ == "__main__":
    app()
