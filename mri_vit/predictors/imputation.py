"""Missing covariates of a control: what the patient's other columns say of them, learned from the training patients.

A table of numbers and categories goes in, a matrix of numbers without a gap comes out; no label is read. A regression that is
linear in its columns predicts, from the mean of a patient's possible values, the mean of its predictions from each: the mean
over infinitely many imputations on the scale of the linear predictor, without their scatter and their cost. Letters: n patients,
k columns.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import OneHotEncoder

Columns = Float[np.ndarray, "n k"]  # NaN where missing
Part = Float[np.ndarray, "n _"]  # some of these
MAX_STEPS, LAST_STEP = 200, 1e-5  # of EM, which needs ten to fifty; the largest change of a correlation that the last may make


class ImputedColumns(BaseEstimator, TransformerMixin):
    """Numbers as they are and categories as a column each, missing ones imputed; and a flag for each column that lacks some.

    Columns stand in this order: numbers, their flags, then of each category its levels, and its flag among them. A level that no
    training patient has is missing: nothing is known of it. A flag is kept beside the imputed value because what is missing in a
    hospital may say something itself: there a control without it is weaker than it could be, and elsewhere it costs next to
    nothing (`pipelines/reproduce.py null_studies/imputation`). Without a missing cell nothing is changed.
    """

    def fit(self, rows: pd.DataFrame, y: object = None) -> ImputedColumns:
        words = rows.select_dtypes(object)
        self.encoder_ = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(words) if words.shape[1] else None
        self.flagged_ = np.isnan(rows.select_dtypes(float).to_numpy(float)).any(axis=0)
        self.joint_ = JointNormal().fit(np.hstack(self._parts(rows)[:2]))
        return self

    def transform(self, rows: pd.DataFrame) -> Float[np.ndarray, "n k"]:
        numbers, levels, is_flag, encoded = self._parts(rows)
        filled = self.joint_.filled(np.hstack([numbers, levels]))
        encoded[:, ~is_flag] = filled[:, numbers.shape[1] :]
        return np.hstack([filled[:, : numbers.shape[1]], np.isnan(numbers[:, self.flagged_]).astype(float), encoded])

    def _parts(self, rows: pd.DataFrame) -> tuple[Part, Part, Bool[np.ndarray, " _"], Part]:
        """Numbers; the levels of categories, NaN of a patient who lacks one; which encoded columns are flags; the encoded."""
        numbers, words = rows.select_dtypes(float).to_numpy(float), rows.select_dtypes(object)
        if self.encoder_ is None:
            nothing = np.zeros((len(rows), 0))
            return numbers, nothing, np.zeros(0, dtype=bool), nothing
        names = [(place, level) for place, levels in enumerate(self.encoder_.categories_) for level in levels]
        is_flag = np.array([level is None for _, level in names], dtype=bool)
        encoded, of = np.asarray(self.encoder_.transform(words), dtype=float), np.array([place for place, _ in names])
        lacks = np.column_stack([~encoded[:, (of == place) & ~is_flag].any(axis=1) for place in of])
        encoded = np.where(is_flag, lacks, encoded)
        return numbers, np.where(lacks, np.nan, encoded)[:, ~is_flag], is_flag, encoded


class JointNormal:
    """The best linear prediction of missing columns from the known ones, by mean and covariance of all.

    Formula: E[x_m | x_o] = μ_m + S_mo S_oo⁻¹ (x_o - μ_o), with μ and S by the EM algorithm on columns of unit variance; the prior
    of the correlations is that of k more patients of whose columns no two are related, so that S has an inverse with more columns
    than patients.
    Assumption: cells are missing at random given the patient's known columns; relations are linear, and no more is asked of the
    distribution, since the regressions that read the columns are linear too.
    Source: Dempster, Laird & Rubin 1977; Schafer 1997, Analysis of Incomplete Multivariate Data, sections 5.2 and 5.3; the
    linear predictor's mean over imputations as the prediction: Wood et al. 2015, doi:10.1002/bimj.201400004; Miles 2016,
    doi:10.1177/0049124115610345.
    """

    def fit(self, columns: Columns) -> JointNormal:
        known = ~np.isnan(columns)
        count = known.sum(axis=0)
        self.mean = np.where(known, columns, 0.0).sum(axis=0) / np.maximum(count, 1)
        spread = np.sqrt(np.where(known, (columns - self.mean) ** 2, 0.0).sum(axis=0) / np.maximum(count, 1))
        self.spread = np.where(spread > 0, spread, 1.0)
        z, (n, k) = (columns - self.mean) / self.spread, columns.shape
        self.centre, self.covariance = np.zeros(k), np.eye(k)
        patterns = _patterns(z)
        for _ in range(MAX_STEPS):
            filled, left = self._expected(z, patterns)
            centre = filled.mean(axis=0) if n else self.centre
            away = filled - centre
            covariance = (away.T @ away + left + k * np.eye(k)) / (n + k)
            change = np.abs(covariance - self.covariance).max(initial=0.0)
            self.centre, self.covariance = centre, covariance
            if change < LAST_STEP or known.all():  # with nothing missing the first step is the last
                break
        return self

    def filled(self, columns: Columns) -> Float[np.ndarray, "n k"]:
        """The rows with their missing cells predicted; known cells are left as they are, to the bit."""
        missing = np.isnan(columns)
        if not missing.any():
            return columns
        z = (columns - self.mean) / self.spread
        predicted, _ = self._expected(z, _patterns(z))
        return np.where(missing, predicted * self.spread + self.mean, columns)

    def _expected(
        self, z: Columns, patterns: list[tuple[Bool[np.ndarray, " k"], np.ndarray]]
    ) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, "k k"]]:
        """The rows filled, and the sum of the covariances of what was filled."""
        filled, left = z.copy(), np.zeros_like(self.covariance)
        for lacks, rows in patterns:
            seen = ~lacks
            across = self.covariance[np.ix_(lacks, seen)]
            slopes = np.linalg.solve(self.covariance[np.ix_(seen, seen)], across.T).T
            filled[np.ix_(rows, lacks)] = self.centre[lacks] + (z[np.ix_(rows, seen)] - self.centre[seen]) @ slopes.T
            left[np.ix_(lacks, lacks)] += len(rows) * (self.covariance[np.ix_(lacks, lacks)] - slopes @ across.T)
        return filled, left


def _patterns(z: Columns) -> list[tuple[Bool[np.ndarray, " k"], np.ndarray]]:
    """Which columns are missing together, and in which rows; complete rows are left out."""
    kinds, of_row = np.unique(np.isnan(z), axis=0, return_inverse=True)
    return [(lacks, np.flatnonzero(of_row.ravel() == place)) for place, lacks in enumerate(kinds) if lacks.any()]
