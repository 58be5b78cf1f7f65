"""MONAI bundle: the files by which an exported model is one, too, `configs/metadata.json`, `inference.json` and `docs/README.md`.

After MONAI's bundle specification and the schema of 2024-07-25. Its `models/model.pt` is not written: it is a pickle, which runs
code when it is read; `network_def` gives a network from the safetensors.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mri_vit.finished.model_document import ModelDocument
from mri_vit.report.words.notation import listed, title
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.settings import recipe
from mri_vit.settings.schema import Study

SCHEMA = "https://github.com/Project-MONAI/MONAI-extra-test-data/releases/download/0.8.1/meta_schema_20240725.json"
CONFIGS, DOCS = "configs", "docs"
INFERENCE: dict[str, Any] = {  # every value can be overridden on the command line
    "imports": ["$from pathlib import Path", "$from rich.console import Console"],
    "bundle_root": ".",
    "scans": "$@bundle_root + '/scans'",
    "output_dir": "predicted",
    "show_untrusted": False,
    "allow_synthetic": False,
    "allowed": {
        "_target_": "mri_vit.finished.predict.Allowed",
        "untrusted": "@show_untrusted",
        "synthetic": "@allow_synthetic",
    },
    "network_def": {"_target_": "mri_vit.model.network.load", "path": f"$Path(@bundle_root) / 'fold-1' / '{files.WEIGHTS}'"},
    "prediction": {
        "_target_": "mri_vit.finished.predict.predict",
        "_mode_": "callable",
        "home": "$Path(@bundle_root)",
        "source": "$Path(@scans)",
        "output": "$Path(@output_dir)",
        "workers": 1,
        "allowed": "@allowed",
        "console": "$Console()",
    },
    "run": ["$@prediction()"],
}
README = """# {study}

{notice} `model_card.md` beside this folder says what the model is and what it was made from.

    pip install mri_vit-{version}-py3-none-any.whl 'monai[fire]'
    mri-vit predict MODEL SCANS -o OUTPUT
    python -m monai.bundle run --config_file MODEL/configs/inference.json --bundle_root MODEL --scans SCANS --output_dir OUTPUT

SCANS is a patient's folder of NIfTI files or DICOM series, or a table with the columns patient, {sequences}. Both commands write
the same predictions. The configuration names code of the installed `mri_vit` alone; MONAI evaluates what a configuration says,
so run none from a source that you do not trust.
"""


def write(study: Study, document: ModelDocument, folder: Path) -> None:
    """Write the bundle's files into the folder of an exported model."""
    for name in (CONFIGS, DOCS):
        (folder / name).mkdir()
    for name, content in (("metadata", metadata(study, document)), ("inference", INFERENCE)):
        write_bytes(json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n", folder / CONFIGS / f"{name}.json")
    text = README.format(version=document.version, study=study.name, notice=document.notice, sequences=listed(study.channels))
    write_bytes(text.encode(), folder / DOCS / "README.md")


def metadata(study: Study, document: ModelDocument) -> dict[str, Any]:
    """What the bundle says of itself; tensors are those of one network, for one patient."""
    facts, names = document.facts, [endpoint.name for endpoint in study.endpoints]
    found = {name: one.of_run for name, one in document.endpoints.items()}
    sequences = listed([recipe.title(channel) for channel in study.channels])
    numbers = len(study.channels) * study.grid.patch**3
    outputs = {
        name: {
            "type": "tuples",
            "format": "classes",
            "num_channels": 1,
            "spatial_shape": ["*"],
            "dtype": "float32",
            "value_range": [],
        }
        for name in names
    }
    return {
        "schema": SCHEMA,
        "version": document.version,
        "changelog": {document.version: "exported from a finished run"},
        "monai_version": version("monai"),
        "pytorch_version": version("torch"),
        "numpy_version": version("numpy"),
        "required_packages_version": {"mri-vit": document.version},
        "task": f"Prediction of {listed([title(name) for name in names])} from brain MRI",
        "description": f"Mean of {len(facts.weights)} 3D networks on {sequences}, cross-validated on {facts.patients} patients",
        "authors": f"the authors of the study {facts.study}",
        "copyright": facts.licence,
        "data_type": "nibabel",
        "intended_use": document.notice,
        "eval_metrics": {f"{name}_{one.measure}": one.estimate.value for name, one in found.items() if one},
        "references": ["Dosovitskiy et al. 2021, arXiv:2010.11929"],
        "network_data_format": {
            "inputs": {
                "patches": {
                    "type": "image",
                    "format": "magnitude",
                    "modality": "MR",
                    "num_channels": numbers,
                    "spatial_shape": ["n"],
                    "dtype": "float32",
                    "value_range": [],
                    "is_patch_data": True,
                    "channel_def": {str(index): channel for index, channel in enumerate(study.channels)},
                },
                "position": {
                    "type": "tuples",
                    "format": "indices",
                    "num_channels": 1,
                    "spatial_shape": ["n"],
                    "dtype": "int64",
                    "value_range": [0, study.grid.positions - 1],
                },
            },
            "outputs": outputs,
        },
    }
