"""AutoTwinRegressor: a blend of twins, networks, trees, Gaussian processes and ridge."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from joblib import parallel_config
from sklearn.base import clone
from sklearn.utils import Tags, check_consistent_length

from twinned._compat import safe_indexing
from twinned.estimators.base import BaseTwin
from twinned.estimators.blending.cross_fit import cross_fit
from twinned.estimators.blending.members import (
    CrossFittedMember,
    FitSettings,
    FittedMember,
    MemberSpec,
    resolve_members,
)
from twinned.estimators.blending.model import BlendModel
from twinned.estimators.blending.rows import BlendRows, blend_rows
from twinned.estimators.blending.weights import (
    LEADERBOARD_FORMATS,
    FitRecord,
    blend,
    held_out_predictions,
    leaderboard,
    rmse_and_error,
    spread_around,
    spread_weights,
    twin_contribution,
)
from twinned.estimators.several_targets import joint_level, joint_scores, per_target, target_columns
from twinned.exceptions import ignore_table_warnings
from twinned.fitted.conformal import CrossCalibrated
from twinned.fitted.quantiles import tails
from twinned.fitted.twin import LocalErrors
from twinned.models.batches import remove_offsets
from twinned.models.measurement_errors import weigh_by_error
from twinned.models.resources import limit_threads, parse_memory_limit
from twinned.pairing.anchors import replicate_correlation
from twinned.rows.folds import Folds, complete_predictions
from twinned.rows.formatting import ResultTable
from twinned.rows.training import TrainingRows, validate_training_rows
from twinned.rows.validation import (
    check_bool,
    check_n_jobs,
    check_real,
    draw_seed,
    restore_on_failure,
    target_names,
)

_VALIDATED = {"n_features_in_", "feature_names_in_", "_pair_dtype"}  # set before the fit


@dataclass(eq=False, repr=False, kw_only=True)
class AutoTwinRegressor(BaseTwin):
    """A blend of twins, networks, trees, Gaussian processes and ridge regression.

    All members are cross-validated on the same folds and fitted to all rows. The weights of the
    blend come from the out-of-fold predictions, and so do the prediction intervals and
    `contribution_`, the comparison of the blend with and without twins.

    With several targets, y of shape (n_samples, n_targets), there is a blend for each target, with
    weights and intervals of its own; folds are those of all rows. Arrays of results have an axis of
    targets after that of rows, and tables a column `target`. What is not defined for several
    targets is found in the model of each, in `targets_`.

    Parameters
    ----------
    effort : {"fast", "balanced", "thorough"}, default="balanced"
        Effort of the neural members and number of trees and iterations of the others.
    time_budget : float or None, default=None
        Seconds for the fit. Ridge regression is fitted first, in a short fit also a Gaussian
        process, gradient boosting and its twin, then the others in the order of expected gain per
        second; those that are expected to take too long are fitted with less effort or skipped. At
        least one member is always fitted. Several targets share it. None is no limit.
    members : "auto" or list, default="auto"
        Names of members, or tuples (name, regressor). The names are `"ridge"`, `"gp_matern"`,
        `"gp_rbf"`, `"extra_trees"`, `"boosting"`, `"tree_twin"`, `"neural"`, `"neural_twin"`, and
        `"ridge_power"`, `"gp_matern_power"` and `"gp_rbf_power"`, all of which are `"auto"`, and
        `"catboost"` and `"lightgbm"`, which need these libraries. Those with `_power` transform
        skewed features, a skewed target or both; they are tried where there are some, and take the
        place of the plain member where their out-of-fold error is at least 2 % lower.
        `"neural_twin:fast"` has an effort of its own. A regressor gets standardized numeric
        features without missing values. `plan_` of another fit is such a list.
    cv : int, splitter, iterable or None, default=None
        Folds, in which each row must be held out at most once. An integer is that many random
        folds, None is 5, or 10 with fewer than 500 rows (1,000 with `effort="thorough"`); rows with
        equal features are in the same one. With a splitter that does not hold out every row, such
        as `ForwardFolds()` or `TimeSeriesSplit()`, weights, errors and intervals are those of the
        held-out rows.
    categorical_features : {"from_dtype"}, list or None, default="from_dtype"
        As in `TwinRegressor`.
    n_jobs : int or None, default=None
        Number of threads for the fits of members and folds; None means 1, and −1 all cores. The
        result does not depend on it, except for rounding in networks.
    memory_limit : int, str or None, default="512MB"
        Memory limit of the twins and networks and of the blocks of predictions.
    random_state : int, RandomState or None, default=None
        Seed of folds and members.
    verbose : int, default=0
        With 1, a line is printed for each member.

    Attributes
    ----------
    leaderboard_ : DataFrame
        One row for each member, the best first: `member`, out-of-fold `rmse` and its standard error
        `rmse_se`, `weight` in the blend, `fit_seconds` of all folds and the final fit,
        `predict_seconds` for as many rows as the training set has, and `bytes` of the pickled
        member, 0 where it cannot be pickled.
    contribution_ : dict or None
        `ratio` of the out-of-fold RMSE of the blend with twins to that of the blend without, with
        its 90 % bootstrap interval `lower`, `upper`, and both errors, `rmse` and `baseline_rmse`.
        The weights of both are fitted to other rows. `baseline_weights` (n_members,) are those of
        the blend without twins, fitted to all rows, in the order of `member_names_`. None without
        twins, or with twins alone.
    blend_ : dict
        `method` of the weights (`"greedy"`, `"smoothed"` or `"simplex"`), the out-of-fold `rmse` of
        the blend with weights fitted to other rows, and that of each method, `nested_rmse`.
    member_names_ : list of str
        Names of the fitted members.
    member_weights_ : ndarray of shape (n_members,)
        Weights of the blend, which sum to one.
    members_ : dict
        The fitted estimators by name.
    out_of_fold_prediction_ : ndarray of shape (n_anchors,)
        Out-of-fold predictions of the blend, with weights fitted to other rows; NaN for rows that
        no fold holds out. The estimates from these anchors are the prediction itself, as of an
        anchor of mean error.
    replicate_correlation_ : float
        Correlation of the out-of-fold errors of rows with equal features. Predictions of rows that
        equal training rows are moved towards their known values as far as this suggests. It is 0
        with sample weights, or with fewer than 20 rows that occur more than once.
    batch_offsets_ : DataFrame
        Of a fit with `batch`: `offset` of each batch relative to the mean of all batches, its
        `std_error` and the number of its known rows `n_rows`. `anchors_y_` and
        `out_of_fold_prediction_` are without the offsets.
    batch_errors_ : dict
        Of a fit with `batch`: out-of-fold RMSE of rows of a batch whose other rows are `"known"`,
        and of rows of a `"new"` batch without known rows.
    plan_ : list
        The fitted members; as `members`, without a time budget, it gives the same result again.
    skipped_ : dict
        Reasons for each member that was not fitted: for lack of time, or by an
        `UnsuitableDataError`. Other errors of members are raised.
    targets_ : list of AutoTwinRegressor
        The fitted model of each of several targets; empty for a single one. A model of several
        targets has only this attribute and the next ones, and `leaderboard_`.
    target_names_ : list of str
        Names of several targets: the columns of y, or `y0`, `y1`, ….
    joint_scores_ : ndarray of shape (n,)
        Of each training row that has all of several targets, the least confidence at which the
        intervals contain all of them, in increasing order; see `predict_interval`.
    anchor_groups_ : ndarray of shape (n_anchors,) or None
        Codes of the `groups` of the anchors, without which `applicability` is computed.
    anchors_X_, anchors_y_, anchor_weights_, anchor_rows_, feature_relevance_, n_features_in_
        As in `TwinRegressor`; all training rows of positive weight are anchors.

    Examples
    --------
    >>> from twinned import AutoTwinRegressor
    >>> from twinned.datasets import make_wsb
    >>> X, y = make_wsb(80, random_state=0)
    >>> members = ["ridge", "extra_trees:fast"]
    >>> model = AutoTwinRegressor(members=members, random_state=0).fit(X[:60], y[:60])
    >>> model.leaderboard_["member"].tolist()
    ['ridge', 'extra_trees:fast']
    >>> model.predict_interval(X[60:], confidence=0.9).shape
    (20, 2)
    """

    # all training rows are anchors of equal weight, and differences are antisymmetric
    anchors = "all"
    weights = "uniform"
    symmetric = True
    is_blend = True
    shrinks_offsets = True

    effort: str = "balanced"
    time_budget: float | None = None
    members: Any = "auto"
    cv: Any = None
    categorical_features: Any = "from_dtype"
    n_jobs: int | None = None
    memory_limit: int | str | None = "512MB"
    random_state: Any = None
    verbose: int = 0

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.multi_output = True
        return tags

    def fit(
        self,
        X,
        y,
        sample_weight=None,
        groups=None,
        y_lower=None,
        y_upper=None,
        batch=None,
        y_std=None,
    ):
        """Cross-validate and fit the members, and fit the weights of the blend.

        Parameters
        ----------
        X : table or array of shape (n_samples, n_features)
            Training rows; missing values are allowed.
        y : array of shape (n_samples,), or table or array of shape (n_samples, n_targets)
            Their target values. With several targets, a missing value is NaN: a row is used for the
            targets that it has.
        sample_weight : array of shape (n_samples,), default=None
            Weights of the rows, for all members that support them and for the blend.
        groups : array of shape (n_samples,), default=None
            Groups of rows that are held out together, so that errors, intervals and applicability
            are those of rows of new groups. With `cv=ForwardFolds()`, they are times.
        y_lower, y_upper : arrays of shape (n_samples,), default=None
            Bounds of censored rows, whose y is NaN, as in `TwinRegressor`. Networks are trained
            with the bounds, the other members with imputed values. Errors and intervals are those
            of the known rows; in the fit of the weights, predictions beyond bounds count, too.
        batch : array of shape (n_samples,), default=None
            Batch of each row, such as a laboratory or an instrument, whose values of y have an
            unknown offset. All members are fitted to y without the offsets, which are shrunk by
            their estimated variance. `groups` defines folds, `batch` offsets; both may be given.
        y_std : float or array of shape (n_samples,), default=None
            Known standard deviations of the errors of measurement of y, in units of y, 0 for an
            exact value. Rows are weighted by the inverse of y_std² plus the variance of the
            remaining errors, which is estimated, times `sample_weight`.
            Intervals are then those of a measurement or of the value itself.

        Returns
        -------
        self
        """
        given = {"y_lower": y_lower, "y_upper": y_upper, "batch": batch, "y_std": y_std}
        return self.fit_blend(X, y, sample_weight=sample_weight, groups=groups, **given)

    def fit_blend(self, X, y, *, calibrate=True, **given):
        """`fit` with these arguments; without calibration, `select_members` makes intervals."""
        start = time.perf_counter()
        several = target_names(y)
        # each task of the fit has a single thread
        with restore_on_failure(self), limit_threads(1):
            self.check_parameters()
            seed = draw_seed(self.random_state)
            self._pair_dtype = np.dtype(np.float64)
            given |= {"multi_output": bool(several), "allow_missing": bool(several)}
            data = validate_training_rows(self, X, y, **given, pair_dtype=self._pair_dtype)
            for name in {name for name in vars(self) if name.endswith("_")} - _VALIDATED:
                delattr(self, name)  # of an earlier fit
            if several:
                self._fit_targets(data, several, seed, start)
            else:
                self.fit_rows(data, seed, start, calibrate)
        return self

    # --- steps of fit -------------------------------------------------------------------------

    def fit_rows(self, data: TrainingRows, seed: int, start: float, calibrate: bool = True) -> None:
        """Fit the blend of a single target to validated rows; `start` is when the fit began."""
        data = weigh_by_error(remove_offsets(data, self.shrinks_offsets))
        rows = blend_rows(data, self.cv, self.effort, seed)
        with ignore_table_warnings():
            members = self.fit_members(self.check_parameters(), rows.rows, seed, start)
            self._set_blend(FitRecord(members, rows, seed))
            if calibrate:
                with parallel_config("threading", n_jobs=self.n_jobs):
                    self._calibrate()
        if self.verbose:
            method, rmse = self.blend_["method"], self.blend_["rmse"]
            _print(f"blend ({method}): RMSE {rmse:.4g}, all in {time.perf_counter() - start:.1f} s")

    def _fit_targets(self, data: TrainingRows, names: list[str], seed: int, start: float) -> None:
        """Fit a blend to each target, on the same folds; each has the rows that have its value."""
        rows = blend_rows(data, self.cv, self.effort, seed).anchors  # with their folds
        self.targets_ = []
        for j, name in enumerate(names):
            known = replace(rows, y=rows.y[:, j]).take(~np.isnan(rows.y[:, j]))
            model, begin = clone(self), time.perf_counter()
            vars(model).update({key: vars(self)[key] for key in _VALIDATED & vars(self).keys()})
            model.target_name_ = name
            if self.time_budget is not None:
                left = self.time_budget - (begin - start)
                model.time_budget = max(left / (len(names) - j), 0.01)
            if self.verbose:
                _print(f"target {name}")
            try:
                model.fit_rows(known, seed, begin)
            except ValueError as error:
                raise ValueError(f"Target {name!r}: {error}") from error
            self.targets_.append(model)
        self.joint_scores_ = joint_scores(self.targets_, data.n_table_rows)

    def check_parameters(self) -> list[MemberSpec]:
        """Raise for invalid parameters."""
        check_n_jobs(self.n_jobs)
        parse_memory_limit(self.memory_limit)
        if self.time_budget is not None and check_real("time_budget", self.time_budget) <= 0:
            raise ValueError(f"time_budget must be positive, not {self.time_budget!r}.")
        return resolve_members(self.members, self.effort)

    def fit_members(
        self, specs: list[MemberSpec], rows: TrainingRows, seed: int, start: float
    ) -> list[CrossFittedMember]:
        """Fit the members; `start` is the time at which the fit of the blend began."""

        def report(member: CrossFittedMember) -> None:
            if self.verbose:
                known = rows.take(np.flatnonzero(rows.held_out & ~rows.censored))
                predicted = member.out_of_fold[rows.held_out & ~rows.censored]
                rmse, _ = rmse_and_error(predicted, known.y, known.weight)
                seconds = f"fitted in {member.fit_seconds:.1f} s"
                _print(f"{member.label}: RMSE {rmse:.4g}, {seconds}")

        members, self.skipped_ = cross_fit(
            specs,
            rows,
            FitSettings(seed, self.memory_limit, self.n_jobs),
            time_budget=self.time_budget,
            start=start,
            report=report,
            stacklevel=6,
        )
        return members

    def _set_blend(self, record: FitRecord) -> None:
        """Set the members, their weights, and what the out-of-fold predictions show."""
        self._record = record
        members, rows, seed = record.members, record.rows, record.seed % 2**16
        known, anchors, held_out = rows.known, rows.anchors, rows.anchors.held_out
        predictions = held_out_predictions(members, rows)[: len(known)]
        weights = blend(members, rows, seed)
        self.members_ = {member.label: member.estimator for member in members}
        self._preparations = [member.preparation for member in members]
        parts = rows.of_anchors(predictions), anchors.y, anchors.weight
        self._anchor_predictions = complete_predictions(*parts)
        self._spread_weights = spread_weights(predictions, known, weights.weights)
        self.member_weights_ = weights.weights
        self.blend_: dict[str, Any] = {
            "method": weights.method,
            "rmse": weights.nested_rmse[weights.method],
            "nested_rmse": weights.nested_rmse,
        }
        self.plan_ = [member.spec.entry for member in members]
        nested, own = rows.of_anchors(weights.nested_prediction), anchors.take(held_out)
        self.replicate_correlation_ = replicate_correlation(
            np.column_stack([own.matrix, np.asarray(own.fold, dtype=float)]),
            own.y - nested[held_out],
            own.weight,
        )
        self._store_rows(rows.rows, anchors)
        self.set_out_of_fold(self._anchor_predictions @ weights.weights, anchors.folds)
        if self.local_power_:
            local = LocalErrors(self._anchors, np.asarray(self.anchor_errors_), anchors.folds)
            nested = nested + local.predict(self.local_power_)
            self.blend_["rmse"], _ = rmse_and_error(nested[held_out], own.y, own.weight)
        self.out_of_fold_prediction_ = nested
        if anchors.offsets is not None:
            known = self._set_batches(rows)
        self._leaderboard = leaderboard(members, predictions, known, weights.weights)
        self.contribution_ = twin_contribution(members, predictions, known, weights, seed)

    def _set_batches(self, rows: BlendRows) -> TrainingRows:
        """Set offsets and errors of batches; the known rows with y by the offsets without them.

        The offset of a row is then estimated from the other rows of its batch, so that errors are
        those of new rows.
        """
        held_out, known = rows.anchors.held_out, rows.known
        self.set_offsets(rows.anchors.offsets, self.out_of_fold_prediction_)
        fitted, weight = self.fitted_, self.anchor_weights_
        batches, codes = fitted.batches, np.asarray(self.anchor_batches_)
        assert batches is not None, "they are set"
        y = fitted.known_y
        residual = y - self.out_of_fold_prediction_
        own, widening = batches.without_own(residual, codes, weight)
        missing = fitted.anchor_offsets, own
        self._record = self._record._replace(widening=widening, missing_offsets=missing)
        weight = None if weight is None else weight[held_out]
        means = {"known": own, "new": np.full(len(y), batches.center)}
        self.batch_errors_ = {
            name: rmse_and_error(mean[held_out], residual[held_out], weight)[0]
            for name, mean in means.items()
        }
        self.out_of_fold_prediction_ = self.anchors_y_ - residual + own
        self.blend_["rmse"] = self.batch_errors_["known"]
        known_y = known.y.copy()
        known_y[rows.known_of_anchors[held_out]] = (y - own)[held_out]
        return replace(known, y=known_y)

    def _calibrate(self) -> None:
        """Store prediction intervals from the out-of-fold errors of the blend."""
        rows, mean = self._record.rows, self.out_of_fold_prediction_
        if (widening := self._record.widening) is not None:  # as of rows of large batches
            mean = self.anchors_y_ - (self.anchors_y_ - mean) / widening
        members = self._anchor_predictions
        spread = spread_around(members @ self.member_weights_, members, self._spread_weights)
        folds = rows.anchors.folds
        calibrated = CrossCalibrated(
            [self] * len(folds),
            self,
            self.anchors_X_,
            self.anchors_y_,
            folds,
            random_state=self._record.seed,
            predicted=(mean, spread),
            y_std=rows.anchors.y_std,
        )
        calibrated.store_in(self)
        self._record = self._record._replace(scores=calibrated.out_of_fold()[1])

    # --- members ------------------------------------------------------------------------------

    @property
    def fitted_members_(self) -> list[FittedMember]:
        """The fitted members, with the preparation of their features."""
        self.require_single_target()
        parts = zip(self.members_.items(), self._preparations, strict=True)
        return [FittedMember(*item, preparation) for item, preparation in parts]

    @property
    def member_names_(self) -> list[str]:
        """Names of the fitted members."""
        return list(self.members_)

    @property
    @per_target
    def leaderboard_(self) -> pd.DataFrame:
        """Errors, weight, seconds and size of each member, the best first."""
        return ResultTable.create(self._leaderboard, LEADERBOARD_FORMATS)

    @per_target
    def out_of_fold(self) -> pd.DataFrame:
        """Out-of-fold predictions of the blend and of each member; a saved model has none.

        Returns
        -------
        DataFrame with the columns `y`, `prediction`, `score`, which is the error divided by the
        error scale of the intervals, `fold`, and one for each member. The index has the numbers of
        the anchors; those that no fold holds out are not there. With batches, predictions are those
        of rows of known batches, in which the offset is estimated from the other rows.
        """
        fitted_members, rows, *_, missing, scores = self._fit_record()
        held_out = np.flatnonzero(rows.anchors.held_out)
        merged_into = rows.merged_into[held_out]
        n_rows = len(rows.anchors)
        of_blend, of_members = (np.broadcast_to(part, n_rows)[held_out] for part in missing)
        columns = {
            "y": self.fitted_.known_y[held_out],
            "prediction": self.out_of_fold_prediction_[held_out] + of_blend,
            "score": np.nan if scores is None else scores,
            "fold": np.asarray(rows.anchors.fold)[held_out],
        }
        predicted = {each.label: each.out_of_fold[merged_into] for each in fitted_members}
        members = {name: mean + of_members for name, mean in predicted.items()}
        return pd.DataFrame(columns | members, index=held_out)

    @property
    def folds_(self) -> Folds:
        """(training rows, held-out rows) of each fold, numbers of anchors; as `out_of_fold`."""
        return self._fit_record().rows.anchors.folds

    def select_members(self, names: list[str]) -> Self:
        """A new fitted blend of some members, the same as a fit with only these entries of `plan_`.

        No member is fitted again. A saved model cannot do this.
        """
        members, rows, seed, *_ = self._fit_record()
        if not names or not set(names) <= set(self.members_):
            raise ValueError(f"names must be of {self.member_names_}, not {names!r}.")
        chosen = [member for member in members if member.label in names]
        selected = copy.copy(self)
        selected.set_params(members=[member.spec.entry for member in chosen], time_budget=None)
        with ignore_table_warnings():
            selected._set_blend(FitRecord(chosen, rows, seed))
            selected._calibrate()
        return selected

    def _fit_record(self) -> FitRecord:
        self.require_single_target()
        if not hasattr(self, "_record"):
            raise AttributeError("The model was loaded or has new anchors; fit it again.")
        return self._record

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("_record", None)  # a saved model has none
        return state

    # --- prediction ---------------------------------------------------------------------------

    def predict_members(self, X, batch=None):
        """Predict by each member.

        Returns
        -------
        y : ndarray of shape (n_members, n_queries)
            In the order of `member_names_`, those without weight included.
        """
        queries = self.encode(X, batch=batch)
        with limit_threads(self.n_jobs):
            predicted = self._make_model().predict_members(queries.matrix).T
        return predicted if queries.offset is None else predicted + queries.offset

    def add_anchors(self, X, y, batch=None):
        """A new fitted blend with the same members and further anchors.

        The original is unchanged. The new anchors have weight 1 where the fit had sample weights.
        The intervals stay calibrated by the rows of the fit. A model with batches needs the `batch`
        of the new anchors, a label for all or for each.
        """
        if self.targets_:
            return self._add_target_anchors(X, y, batch)
        extended = super().add_anchors(X, y, batch)
        new_X = extended.anchors_X_[len(self.anchors_X_) :]
        with ignore_table_warnings(), limit_threads(self.n_jobs):
            predicted = [member.predict(new_X) for member in self.fitted_members_]
        parts = self._anchor_predictions, np.transpose(predicted)
        extended._anchor_predictions = np.concatenate(parts)
        extended.intervals_ = self.intervals_
        return extended

    def _add_target_anchors(self, X, y, batch):
        """`add_anchors` for each target, by the rows that have its value."""
        check_consistent_length(X, y)
        extended = copy.copy(self)
        columns = target_columns(y, len(self.targets_))
        extended.targets_ = []
        for target, own in zip(self.targets_, columns, strict=True):
            if len(rows := np.flatnonzero(~np.isnan(own))):
                batches = batch if np.ndim(batch) == 0 else safe_indexing(batch, rows)
                target = target.add_anchors(safe_indexing(X, rows), own[rows], batches)
            extended.targets_.append(target)
        return extended

    def predict_interval(
        self, X, confidence=0.9, X_shifted=None, batch=None, *, joint=False, **measurement
    ):
        """Prediction intervals.

        Parameters
        ----------
        X : table or array of shape (n_queries, n_features)
            Rows to predict. Of a Dask DataFrame or Array, the result is lazy, with the columns
            `low` and `high`.
        confidence : float, default=0.9
            Probability with which an interval covers y.
        X_shifted : table or array of shape (n, n_features), default=None
            Rows of another distribution of features, as in `TwinRegressor`.
        batch : str or array of shape (n_queries,), default=None
            As in `predict`. The fewer known rows a batch has, the wider are its intervals.
        joint : bool, default=False
            Whether the intervals of several targets cover all of them at once with this
            probability, by conformal prediction on the training rows that have all targets; else
            each covers its own.
        **measurement
            `of` and `y_std`, as in `TwinRegressor`.

        Returns
        -------
        intervals : ndarray of shape (n_queries, 2) or (n_queries, n_targets, 2)
            Lower and upper ends.
        """
        if not (check_bool("joint", joint) and self.targets_):
            return super().predict_interval(X, confidence, X_shifted, batch, **measurement)
        if X_shifted is not None:
            raise ValueError("joint=True takes no X_shifted.")
        self.targets_[0].warn_of_shift(X)
        return self.predict_quantiles(X, tails(joint_level(self.joint_scores_, confidence)), batch)

    @property
    def target_names_(self) -> list[str]:
        """Names of several targets."""
        return [target.target_name_ for target in self.targets_]

    @property
    def blend_model_(self) -> BlendModel:
        """The difference model of the blend."""
        return self._make_model()

    def _make_model(self) -> BlendModel:
        parts = self.member_weights_, self._spread_weights, self._anchor_predictions
        return BlendModel(self.fitted_members_, *parts, self._anchors)


def _print(text: str) -> None:
    print(f"[AutoTwinRegressor] {text}", flush=True)
