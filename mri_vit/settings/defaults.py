"""Defaults: the settings of a study file go in, and come out with what its recipe says of the keys that it leaves out.

The schema's own defaults, which a record means by a key that it leaves out, are those of the published model with all else off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from mri_vit.errors import UsageError

Recipe = Literal["mask-supervision", "no-masks", "vit-b16"]
RECOMMENDED: Recipe = "mask-supervision"
CARD: Recipe = "vit-b16"  # the published model: 224³ voxels, patches of 16³, 2744 tokens, ViT-B, CLS; it fills nothing in
HALF_PATCH_MM = 8.0  # of the recommended grid

PREPARED: dict[str, dict[str, Any]] = {
    "grid": {"edge": 112, "spacing_mm": 2.0, "patch": 8},  # 14³ positions of 16 mm, as the full grid's
    "prepare": {"workers": 2},
    "explain": {"scored": 50},  # judging one takes some hundred forward passes; fifty make intervals of a tenth
}
SMALL = {"dim": 64, "heads": 4, "mlp": 256, "conv_stem": 16, "tokens": "foreground"}
SMALL |= {"drop_path": 0.0}  # two or three blocks are too few to leave one out
LOOP = {"batch_size": 16, "val_fraction": 0.15, "patience": 100}
RECIPES: dict[str, dict[str, dict[str, Any]]] = {
    # the network of docs/simulated_effects.md, whose heads read CLS alone
    "mask-supervision": PREPARED
    | {
        "model": SMALL | {"depth": 3, "texture": 32, "pool": "cls"},
        "train": LOOP
        | {
            "epochs": 160,
            "token_budget": 160,  # three tumours of 108 to 195 ml (BraTS 2021) touch 81 to 130 positions
            "learning_rate": 3e-3,
            "weight_decay": 0.3,
            "ema": 0.99,
            "translation_mm": HALF_PATCH_MM,
            "mask_supervision_attention": 1.0,
            "mask_supervision_patch_labels": 5.0,
            "mask_supervision_token_labels": 5.0,
            "tumour_tokens_first": True,
            "val_every": 4,
        },
    },
    # where no tumour is known or found, as without FLAIR: of the networks of docs/reproductions.md that read no mask, the one
    # that found small bright regions in few patients, by each feature's largest value over the brain
    "no-masks": PREPARED
    | {
        "model": SMALL | {"depth": 2, "pool": "max"},
        "train": LOOP | {"epochs": 60, "token_budget": 320, "learning_rate": 2e-3, "weight_decay": 0.1},
    },
    "vit-b16": {},
}
MASK_SUPERVISION = (  # weights of losses from tumour masks
    *("mask_supervision_attention", "mask_supervision_patch_labels"),
    "mask_supervision_token_labels",
)


def filled_in(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a study file, every key that they leave out as the recipe has it, so that nothing is left to fill in.

    What a key of the file rules out is left to the schema: a published size's own width, convolutions beside another embedding,
    what is about tokens or masks in a network without tokens. So is a name of a recipe that there is none of.

    Raises UsageError where only half of what makes the grid's extent is given, which would cut brains or blur them.
    """
    name = settings.get("recipe", RECOMMENDED)
    if not isinstance(name, str) or name not in RECIPES:
        return dict(settings)
    grid = settings.get("grid", {})
    if isinstance(grid, Mapping) and RECIPES[name] and len({"edge", "spacing_mm"} & grid.keys()) == 1:
        raise UsageError("grid.edge and grid.spacing_mm say together how much is prepared: give both, such as 112 and 2.0")
    filled: dict[str, Any] = dict(settings) | {"recipe": CARD}
    left_out = _ruled_out(settings)
    for section, keys in RECIPES[name].items():
        given = settings.get(section, {})
        if isinstance(given, Mapping):  # the schema refuses what is no table
            filled[section] = {key: value for key, value in keys.items() if key not in left_out} | dict(given)
            if "translation_mm" in keys and "translation_mm" not in given:
                filled[section]["translation_mm"] = _translation_mm(filled["grid"])
    return filled


def _translation_mm(grid: object) -> float:
    """Half a patch of a grid, and no more than of the recommended one."""
    sides = (grid.get("patch"), grid.get("spacing_mm")) if isinstance(grid, Mapping) else ()
    known = [side for side in sides if isinstance(side, int | float)]
    return min(HALF_PATCH_MM, known[0] * known[1] / 2) if len(known) == 2 else HALF_PATCH_MM


def of_key(name: str, otherwise: Any) -> Any:
    """What a study file gets for a key that it leaves out, such as train.epochs; `otherwise` is the schema's own default."""
    section, _, key = name.rpartition(".")
    return RECOMMENDED if name == "recipe" else RECIPES[RECOMMENDED].get(section, {}).get(key, otherwise)


def _ruled_out(settings: Mapping[str, Any]) -> set[str]:
    model = settings.get("model", {})
    given = model if isinstance(model, Mapping) else {}
    out: set[str] = set()
    if "size" in given:
        out |= {"dim", "depth", "heads", "mlp"}
    if given.get("stem") or given.get("conv_stem") == 0:
        out |= {"conv_stem", "texture"}
    if given.get("architecture", "vit") != "vit":
        out |= {"token_budget", "tumour_tokens_first", *MASK_SUPERVISION}
    if given.get("depth") == 0:
        out.add("mask_supervision_attention")
    return out
