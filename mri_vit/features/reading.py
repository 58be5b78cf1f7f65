"""Reading: the ways in which an encoder is read, by the names that files and tables have for them."""

from __future__ import annotations

CLS = "CLS"  # the class token after the last norm
MEAN = "tokens' mean"  # of the places' tokens after the last norm
FIRST = "first token"  # of an encoder without a class token: what BrainIAC's code reads, see `monai_vit`
HEADS = "heads' input"  # what heads of ours read: CLS and what `pool` adds; of a network that is no ViT, its features
