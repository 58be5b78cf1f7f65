"""The prepared grid: a cube of voxels in the MNI152 frame, cut into places."""

from __future__ import annotations

from pydantic import Field, model_validator

from mri_vit.settings.recipe import Section

GRID_CENTRE_MM = (
    0.0,
    -17.0,
    5.0,
)  # middle of the MNI152 brain's box (x -72..72, y -107..73, z -72..82 mm); x = 0 keeps it symmetric
MAX_PLACES = 32768  # a place is stored as int16


class Grid(Section):
    """The prepared grid: a cube of voxels, cut into cubic patches."""

    edge: int = Field(default=224, ge=2, le=512, description="Voxels along an edge of the cube.")
    spacing_mm: float = Field(default=1.0, ge=0.1, le=10, description="Edge of a voxel in mm.")
    patch: int = Field(default=16, ge=1, description="Voxels along an edge of a patch; it divides edge.")

    @model_validator(mode="after")
    def _whole_patches(self) -> Grid:
        if self.edge % self.patch:
            raise ValueError(f"edge {self.edge} is not a multiple of patch {self.patch}")
        if self.places > MAX_PLACES:
            raise ValueError(
                f"edge {self.edge} in patches of {self.patch} makes {self.places} places; at most {MAX_PLACES} can be stored"
            )
        return self

    @property
    def side(self) -> int:
        """Places along one edge (14 for the default grid)."""
        return self.edge // self.patch

    @property
    def places(self) -> int:
        """Places in the whole grid (2744 for the default grid)."""
        return self.side**3

    @property
    def affine(self) -> list[list[float]]:
        """4×4, voxel index to RAS+ mm of the MNI152 frame."""
        half = (self.edge - 1) / 2 * self.spacing_mm
        x, y, z = (centre - half for centre in GRID_CENTRE_MM)
        s = self.spacing_mm
        return [[s, 0.0, 0.0, x], [0.0, s, 0.0, y], [0.0, 0.0, s, z], [0.0, 0.0, 0.0, 1.0]]
