"""Control: the regression of a control or reference by its name, on what that reads."""

from __future__ import annotations

import pandas as pd

from mri_vit.data.covariates import withheld
from mri_vit.predictors.principal import PrincipalRegressions
from mri_vit.predictors.tabular import NOTHING, Apart, Tabular
from mri_vit.settings.recipe import CLINICAL, RADIOMICS, SLICES
from mri_vit.settings.schema import Study

WIDE = (SLICES, RADIOMICS)  # those that read more columns than there are patients


def control(name: str, covariates: pd.DataFrame, study: Study) -> Tabular | PrincipalRegressions:
    """The unfitted regression of a control or reference."""
    if name in WIDE:
        return PrincipalRegressions(covariates, study.endpoints)
    return Tabular(covariates, study.endpoints, kept_apart(name, covariates, study))


def kept_apart(name: str, covariates: pd.DataFrame, study: Study) -> Apart:
    """By endpoint the columns that a control's regression does not read; what a scan shows may be read for all."""
    return withheld(list(covariates), study) if name == CLINICAL else NOTHING
