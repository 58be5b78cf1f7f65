"""Card: what a file of weights does not say of itself: its licence, and what the scans were like that it learned from.

It is read from a file beside the weights, `brainiac.ckpt.toml` for `brainiac.ckpt`, and from the command line.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pydantic
from pydantic import Field

from mri_vit.errors import UsageError
from mri_vit.settings.recipe import Section

AXES = r"[RL][AP][SI]|[RL][SI][AP]|[AP][RL][SI]|[AP][SI][RL]|[SI][RL][AP]|[SI][AP][RL]"


class Card(Section):
    """What is known of a file of weights; None where it is not stated."""

    licence: str | None = Field(default=None, description="terms under which the weights were published, such as CC-BY-4.0")
    heads: int | None = Field(default=None, ge=1, description="attention heads, which most files do not say")
    edge: int | None = Field(default=None, ge=1, le=512, description="voxels along an edge of the cube that is read")
    spacing_mm: float | None = Field(default=None, ge=0.1, le=10, description="edge of its voxels; unset: the prepared box fits")
    intensity: Literal["zscore", "unit"] = Field(
        default="zscore", description="the brain's voxels: mean 0 and deviation 1, or from 0 to 1; outside is 0"
    )
    axes: str | None = Field(
        default=None, pattern=f"^({AXES})$", description="where the array's axes point to, such as RAS, or SAR for z, y, x"
    )


def read(weights: Path, given: Mapping[str, Any]) -> Card:
    """The card of a file of weights. `given` are values of the command line, None where nothing is; they go first.

    Raises UsageError naming file and key where the card beside the weights is damaged, or says another licence.
    """
    beside = weights.with_name(f"{weights.name}.toml")
    told = {key: value for key, value in given.items() if value is not None}
    try:
        written = tomllib.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
        known, card = Card.model_validate(written), Card.model_validate(written | told)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{beside}: not TOML: {error}") from None
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise UsageError(f"{beside if key in written else weights}: {key}: {first['msg']}, found {first['input']!r}") from None
    if known.licence and card.licence != known.licence:
        raise UsageError(
            f"{weights}: {beside.name} states the licence {known.licence}, the command {card.licence}; only one is right"
        )
    return card
