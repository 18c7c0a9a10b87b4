"""AutoTwinRegressor: a blend of twins, networks, trees, Gaussian processes and ridge."""

import copy
import time
import warnings
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Tags

from twinned.batches.estimation import KINDS, remove_deviations
from twinned.estimators.blending.budget import fit_within
from twinned.estimators.blending.cross_fit import CrossFit, print_progress
from twinned.estimators.blending.fitted_blend import (
    BlendAttributes,
    combine_members,
    joint_scores,
    with_common_function,
)
from twinned.estimators.blending.members import FitSettings, MemberSpec, resolve_members
from twinned.estimators.blending.rows import blend_rows
from twinned.estimators.molecules import fragment_columns
from twinned.exceptions import TableWarning
from twinned.models.measurement_errors import weigh_by_error
from twinned.models.resources import MemoryBudget, limit_threads, parse_memory_limit
from twinned.rows.schema import Floats
from twinned.rows.training import VALIDATED, TrainingRows, validate_training_rows
from twinned.rows.validation import (
    check_choice,
    check_n_jobs,
    check_real,
    draw_seed,
    restore_on_failure,
    target_names,
)


@dataclass(eq=False, repr=False, kw_only=True)
class AutoTwinRegressor(BlendAttributes):
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
        Seconds for the fit. Ridge regression is fitted first, then the others in the order of
        expected gain per second; those that are expected to take too long are fitted with less
        effort or skipped. At least one member is always fitted. Several targets share it. None is
        no limit.
    members : "auto" or list, default="auto"
        Names of members, or tuples (name, regressor). The names are `"ridge"`, `"gp_matern"`,
        `"gp_rbf"`, `"extra_trees"`, `"boosting"`, `"tree_twin"`, `"neural"`, `"neural_twin"`, and
        `"ridge_power"`, `"gp_matern_power"` and `"gp_rbf_power"`, all of which are `"auto"`.
        Where X has columns of counts with the names `"fragment 0"`, …, as those of
        `MoleculeFeatures`, `"auto"` is `"gp_tanimoto"`, `"extra_trees"` and `"neural_twin"`. The
        first is a Gaussian process that adds the Tanimoto kernel of the counts to that of the other
        columns; the second has the 100 counts that are above 0 in the share of rows nearest to a
        half, and leaves of at least three rows; the other members have no counts. Those with
        `_power` transform skewed features and a skewed target; they are fitted where there are
        some.
        `"neural_twin:fast"` has an effort of its own. A regressor gets standardized numeric
        features without missing values. `plan_` of another fit is such a list. Of `"auto"`, trees
        that are far behind other members in their first folds are not fitted further, nor are plain
        networks where the neural twin is far behind.
    cv : int, splitter, iterable or None, default=None
        Folds, in which each row must be held out at most once. An integer is that many random
        folds, None is 5, or 10 with fewer than 500 rows (1,000 with `effort="thorough"`); rows with
        equal features are in the same one. With a splitter that does not hold out every row, such
        as `ForwardFolds()` or `TimeSeriesSplit()`, weights, errors and intervals are those of the
        held-out rows.
    categorical_features : {"from_dtype"}, list or None, default="from_dtype"
        As in `TwinRegressor`.
    batch_effect : {"auto", "offset", "function"}, default="auto"
        What batches differ by, of a fit with `batch`: a constant each, or a function of the
        features each. `"auto"` chooses by the likelihood, and by held-out residuals.
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
        Of a fit with `batch`: mean `offset` of each batch relative to the mean of those of the
        fit, its `std_error` and the number of its known rows `n_rows`. `anchors_y_` and
        `out_of_fold_prediction_` are without what batches deviate by.
    batch_effects_ : DataFrame
        The same, with the mean `deviation`, and for each batch the mean slope of its deviation in
        each numeric feature, the standard deviation of its noise, and the error `rmse` and the
        coverage of 90 % intervals for its rows, as predicted from the others.
    batch_errors_ : dict
        Of a fit with `batch`: out-of-fold RMSE of rows of a batch whose other rows are `"known"`,
        and of rows of a `"new"` batch without known rows.
    plan_ : list
        The fitted members; as `members`, without a time budget, it gives the same result again.
    skipped_ : dict
        Reasons for each member that was not fitted: for lack of time, by an
        `UnsuitableDataError`, or as it was far behind. Other errors of members are raised.
    targets_ : list of AutoTwinRegressor
        The fitted model of each of several targets; empty for a single one. A model of several
        targets has only this attribute and the next ones, and `leaderboard_`.
    target_names_ : list of str
        Names of several targets: the columns of y, or `y0`, `y1`, ….
    joint_scores_ : ndarray of shape (n,)
        Of each training row that has all of several targets, the least confidence at which the
        intervals contain all of them, in increasing order; see `predict_interval`.
    anchors_X_, anchors_y_, anchor_weights_, anchor_rows_, n_features_in_
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

    effort: str = "balanced"
    time_budget: float | None = None
    members: object = "auto"
    cv: object = None
    categorical_features: object = "from_dtype"
    batch_effect: str = "auto"
    n_jobs: int | None = None
    memory_limit: int | str | None = "512MB"
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.multi_output = True
        return tags

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        batch: ArrayLike | None = None,
        y_lower: ArrayLike | None = None,
        y_upper: ArrayLike | None = None,
        y_std: ArrayLike | None = None,
    ) -> Self:
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
            Batch of each row, such as a laboratory or an instrument, whose values of y deviate by
            an unknown constant or function (`batch_effect`). All members are fitted to y without
            the deviations, which are shrunk by their estimated variance; `"gp_matern"` is the
            function of all batches of the process that estimates them. `groups` defines folds,
            `batch` deviations; both may be given.
        y_std : float or array of shape (n_samples,), default=None
            Known standard deviations of the errors of measurement of y, in units of y, 0 for an
            exact value. Rows are weighted by the inverse of y_std² plus the variance of the
            remaining errors, which is estimated, times `sample_weight`.
            Intervals are then those of a measurement or of the value itself.
        """
        return self.fit_blend(
            X,
            y,
            sample_weight=sample_weight,
            groups=groups,
            batch=batch,
            y_lower=y_lower,
            y_upper=y_upper,
            y_std=y_std,
        )

    def fit_blend(
        self, X: ArrayLike, y: ArrayLike, *, calibrate: bool = True, **arguments: Any
    ) -> Self:
        """`fit` with these arguments; without calibration, `select_members` makes intervals."""
        start = time.perf_counter()
        several = target_names(y)
        # each task of the fit has a single thread
        with restore_on_failure(self), limit_threads(1):
            self.check_parameters()
            seed = draw_seed(self.random_state)
            self._pair_dtype = np.dtype(np.float64)
            rows = validate_training_rows(
                self,
                X,
                y,
                **arguments,
                multi_output=bool(several),
                allow_missing=bool(several),
                pair_dtype=self._pair_dtype,
            )
            state = {"_fitted", "_record", "_leaderboard"}
            attributes = {name for name in vars(self) if name.endswith("_")} | state
            for name in attributes - VALIDATED:
                self.__dict__.pop(name, None)  # of an earlier fit
            if several:
                self._fit_targets(rows, several, seed, start)
            else:
                budget = self.time_budget
                vars(self).update(self._blend_of(rows, seed, start, budget, calibrate=calibrate))
        return self

    def refit(self, rows: TrainingRows, *, for_fold: bool = False) -> Self:
        """A blend of the same parameters, fitted to some of the rows of this one.

        Where `cv` is no number of folds, the folds are those of the rows.
        """
        with limit_threads(1):
            seed, start = draw_seed(self.random_state), time.perf_counter()
            attributes = self._blend_of(rows, seed, start, self.time_budget)
        return self.unfitted_copy(**attributes)

    def training_rows(self) -> TrainingRows:
        """The anchors as rows to fit to again, with their folds where `cv` is no number."""
        rows = self.fitted_.training_rows()
        if self.cv is None or isinstance(self.cv, Integral):
            return rows
        anchors = self._fit_record().rows.anchors
        return replace(rows, fold=anchors.fold, fold_training=anchors.fold_training)

    # --- steps of fit -------------------------------------------------------------------------

    def _blend_of(
        self,
        rows: TrainingRows,
        seed: int,
        start: float,
        budget: float | None,
        *,
        calibrate: bool = True,
    ) -> dict[str, Any]:
        """The fitted attributes of a blend of a single target; `start` is when the fit began."""
        if rows.batch is not None:
            rows = remove_deviations(rows, self.batch_effect, shrinks=True)
        if rows.y_std is not None:
            rows = weigh_by_error(rows)
        shared = blend_rows(rows, self.cv, self.effort, seed)
        fragments, names = np.arange(0), vars(self).get("feature_names_in_")
        if names is not None:
            fragments = fragment_columns(names, rows.matrix)
        settings = FitSettings(
            seed=seed,
            memory_limit=self.memory_limit,
            n_jobs=self.n_jobs,
            fragments=np.setdiff1d(fragments, rows.schema.categorical),
            verbose=self.verbose > 0,
        )
        has_fragments = len(settings.fragments) > 0
        specs = resolve_members(self.members, self.effort, has_fragments=has_fragments)
        fits = CrossFit(shared.rows, settings)
        with warnings.catch_warnings(action="ignore", category=TableWarning):
            if budget is None:
                members = fits.fit_all(specs)
            else:
                members = fit_within(fits, specs, start + budget)
            fits.report_skipped(stacklevel=4)
            members = with_common_function(members, shared)
            memory = MemoryBudget(self.memory_limit, self.n_jobs)
            combined = combine_members(members, shared, seed, memory, calibrate=calibrate)
        if self.verbose:
            method, rmse = combined["blend_"]["method"], combined["blend_"]["rmse"]
            print_progress(
                f"blend ({method}): RMSE {rmse:.4g}, all in {time.perf_counter() - start:.1f} s"
            )
        return {"skipped_": fits.skipped, **combined}

    def _fit_targets(self, data: TrainingRows, names: list[str], seed: int, start: float) -> None:
        """Fit a blend to each target, on the same folds; each has the rows that have its value."""
        rows = blend_rows(data, self.cv, self.effort, seed).anchors  # with their folds
        self.targets_: list[Self] = []
        for j, name in enumerate(names):
            known = replace(rows, y=rows.y[:, j]).take(~np.isnan(rows.y[:, j]))
            begin, budget = time.perf_counter(), self.time_budget
            if budget is not None:
                budget = max((budget - (begin - start)) / (len(names) - j), 0.01)
            if self.verbose:
                print_progress(f"target {name}")
            try:
                attributes = self._blend_of(known, seed, begin, budget)
            except ValueError as error:
                raise ValueError(f"Target {name!r}: {error}") from error
            attributes |= {"target_name_": name, "time_budget": budget}
            self.targets_.append(self.unfitted_copy(**attributes))
        self.joint_scores_: Floats = joint_scores(self.targets_, data.n_table_rows)

    def check_parameters(self) -> list[MemberSpec]:
        """Raise for invalid parameters."""
        check_n_jobs(self.n_jobs)
        check_choice("batch_effect", self.batch_effect, KINDS)
        parse_memory_limit(self.memory_limit)
        if self.time_budget is not None and check_real("time_budget", self.time_budget) <= 0:
            raise ValueError(f"time_budget must be positive, not {self.time_budget!r}.")
        return resolve_members(self.members, self.effort)

    def select_members(self, names: list[str]) -> Self:
        """A new fitted blend of some members, the same as a fit with only these entries of `plan_`.

        No member is fitted again. A saved model cannot do this.
        """
        record = self._fit_record()
        if not names or not set(names) <= set(self.members_):
            raise ValueError(f"names must be of {self.member_names_}, not {names!r}.")
        chosen = [member for member in record.members if member.label in names]
        selected = copy.copy(self)
        selected.set_params(members=[member.spec.entry for member in chosen], time_budget=None)
        budget = selected.fitted_.budget
        with warnings.catch_warnings(action="ignore", category=TableWarning):
            combined = combine_members(chosen, record.rows, record.seed, budget, calibrate=True)
        vars(selected).update(combined)
        return selected

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_record", None)  # a saved model has none
        return state
