"""What is shown of a new patient's grade."""

from __future__ import annotations

from mri_vit.finished.prediction_document import Ordinal
from mri_vit.kinds.class_shown import ClassShown

PART = ClassShown(Ordinal, "ordinal", ordered=True)
