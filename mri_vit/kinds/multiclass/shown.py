"""What is shown of a new patient's class."""

from __future__ import annotations

from mri_vit.finished.prediction_document import Multiclass
from mri_vit.kinds.class_shown import ClassShown

PART = ClassShown(Multiclass, "multiclass", ordered=False)
