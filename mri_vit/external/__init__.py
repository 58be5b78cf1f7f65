"""A finished run on other patients: the mean of its fold models, with nothing fitted anew."""

from mri_vit.external.ensemble import mean_of_folds
from mri_vit.external.evaluation import evaluate
from mri_vit.external.finished import finished

__all__ = ["evaluate", "finished", "mean_of_folds"]
