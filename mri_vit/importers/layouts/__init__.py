"""The layouts by name. A new one is a file here, a line in this dictionary, a test and a section of docs/importing.md."""

from __future__ import annotations

from mri_vit.importers.layout import Layout
from mri_vit.importers.layouts import (
    bids,
    brats2020_survival,
    brats2021,
    brats2023,
    mu_glioma_post,
    nnunet,
    plain,
    rhuh_gbm,
    rsna_miccai,
    tcga,
    ucsf_pdgm,
    upenn_gbm,
)

LAYOUTS: dict[str, Layout] = {
    "brats2021": brats2021.LAYOUT,
    "brats2023": brats2023.LAYOUT,
    "rsna_miccai": rsna_miccai.LAYOUT,
    "ucsf_pdgm": ucsf_pdgm.LAYOUT,
    "upenn_gbm": upenn_gbm.LAYOUT,
    "tcga": tcga.LAYOUT,
    "mu_glioma_post": mu_glioma_post.LAYOUT,
    "rhuh_gbm": rhuh_gbm.LAYOUT,
    "brats2020_survival": brats2020_survival.LAYOUT,
    "nnunet": nnunet.LAYOUT,
    "bids": bids.LAYOUT,
    "plain": plain.LAYOUT,  # last: it takes much that the others name more exactly
}
