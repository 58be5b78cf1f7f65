"""What published work reached on the same questions: for honest reading of a result, each figure with its source."""

from __future__ import annotations

from collections.abc import Mapping

Figure = dict[str, str]  # figure, what, source

SAEED = "Saeed et al. 2023, Medical Image Analysis, Table 4"
FIGURES: Mapping[str, tuple[Figure, ...]] = {
    "mgmt": (
        {"figure": "AUC 0.6309", "what": "best of 35 models (EfficientNet-b1), BraTS 2021, mean of 5 folds", "source": SAEED},
        {"figure": "AUC 0.5698", "what": "SwinViT, same patients and folds", "source": SAEED},
        {"figure": "AUC 0.5491", "what": "ViT, same patients and folds", "source": SAEED},
        {
            "figure": "AUC 0.562",
            "what": "the challenge's winner on patients from elsewhere; 60 % of 420 models were no better than chance",
            "source": "Kim et al. 2022",
        },
    ),
    "tertp": (
        {"figure": "AUC about 0.79", "what": "pooled over 14 studies, internal validation", "source": "published meta-analysis"},
    ),
    "pten": ({"figure": "AUC 0.79", "what": "radiomics, external validation", "source": "trained on TCGA, tested on CGGA"},),
    "os": (
        {
            "figure": "C 0.65–0.71",
            "what": "from images alone, internal validation",
            "source": "Lee et al. 2023; a ViT study of 2026",
        },
        {
            "figure": "C 0.60–0.68",
            "what": "from images alone, external validation",
            "source": "Lee et al. 2023; a ViT study of 2026",
        },
    ),
}


def figures(endpoint: str) -> list[Figure]:
    """The published figures of an endpoint; none for one that is not known here."""
    return [dict(figure) for figure in FIGURES.get(endpoint, ())]
