"""What published work reached on the same questions: for honest reading of a result, each figure with its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from mri_vit.report.schema.parts import Published

SAEED = "Saeed et al. 2023, Medical Image Analysis, Table 4"
SAEED_DOI = "doi:10.1016/j.media.2023.102989"


def _figure(figure: str, what: str, n: str, validation: Literal["internal", "external", "pooled"], source: str) -> Published:
    return Published(figure=figure, what=what, n=n, validation=validation, source=source)


FIGURES: Mapping[str, tuple[Published, ...]] = {
    "mgmt": (
        _figure(
            "AUC 0.6309",
            "best of 35 models (EfficientNet-b1), BraTS 2021, mean of 5 folds",
            "577",
            "internal",
            f"{SAEED}, {SAEED_DOI}",
        ),
        _figure("AUC 0.5698", "SwinViT, same patients and folds", "577", "internal", f"{SAEED}, {SAEED_DOI}"),
        _figure("AUC 0.5491", "ViT, same patients and folds", "577", "internal", f"{SAEED}, {SAEED_DOI}"),
        _figure(
            "AUC 0.562",
            "the BraTS 2021 challenge's winner on another hospital's patients; of the paper's own 420 models,"
            " 252 were no better than chance",
            "400",
            "external",
            "Kim et al. 2022, Cancers, doi:10.3390/cancers14194827",
        ),
    ),
    "tertp": (
        _figure(
            "AUC 0.79",
            "radiomics from MRI alone, gliomas, a meta-analysis of 13 studies (95 % CI 0.75–0.82)",
            "13 studies; 2863 in the 14 that were reviewed",
            "pooled",
            "Neurosurgical Review 2026, PMID 42265510",
        ),
    ),
    "pten": (
        _figure(
            "AUC 0.787",
            "radiomics, glioblastomas, trained on TCGA and tested on CGGA",
            "40",
            "external",
            "Neuroradiology 2019, doi:10.1007/s00234-019-02244-7",
        ),
    ),
    "os": (
        _figure(
            "C 0.709",
            "SE-ResNeXt, from images alone, diffuse gliomas of SNUH",
            "708",
            "external",
            "Lee et al. 2023, Neuro-Oncology, doi:10.1093/neuonc/noad202",
        ),
        _figure(
            "C 0.677",
            "the same model, Severance",
            "132",
            "external",
            "Lee et al. 2023, Neuro-Oncology, doi:10.1093/neuonc/noad202",
        ),
        _figure(
            "C 0.73",
            "ViT, from images alone, glioblastomas",
            "1883 in all of its cohorts",
            "internal",
            "Lee et al. 2026, Radiology: Artificial Intelligence, doi:10.1148/ryai.250675",
        ),
        _figure(
            "C 0.65 and 0.60",
            "the same model, two public cohorts",
            "1883 in all of its cohorts",
            "external",
            "Lee et al. 2026, Radiology: Artificial Intelligence, doi:10.1148/ryai.250675",
        ),
    ),
}


def figures(endpoint: str) -> tuple[Published, ...]:
    """The published figures of an endpoint; none for one that is not known here."""
    return FIGURES.get(endpoint, ())
