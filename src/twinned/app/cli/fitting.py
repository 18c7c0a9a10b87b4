"""Fits of `twinned fit`: blends and single twins, with their cross-validation."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from joblib import cpu_count
from sklearn import ensemble
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from twinned import AutoTwinRegressor, NearestAnchors, TwinRegressor
from twinned.app.cli import messages
from twinned.app.cli.fit import FitOptions
from twinned.app.cli.results import Facts
from twinned.app.cli.training_data import TrainingData
from twinned.app.report.collect import batch_content, leaderboard_content
from twinned.diagnostics.blend_checks import DiagnosedRows
from twinned.diagnostics.errors import comparison_table, predict_mean, rmse
from twinned.diagnostics.recommendation import choose_model, describe_estimator, describe_failure
from twinned.diagnostics.twin_checks import plain_estimator
from twinned.estimators.conformal import cross_errors, replace_groups
from twinned.estimators.methods import TwinMethods
from twinned.estimators.target import TransformedTargetTwin, split_target
from twinned.exceptions import UnknownCategoryWarning
from twinned.fitted.residuals import with_residuals
from twinned.fitted.target import IDENTITY, TargetTransform
from twinned.rows.folds import Folds, encode_groups, row_folds

# Random partners for each row of a twin of nearest neighbors with --pairs auto: it searches all
# pairs for each pair that it predicts, which takes minutes for the 90,000 pairs of 300 rows.
NEIGHBOR_PARTNERS = 8
NEURAL_EFFORT = "fast"  # a command should return soon; Python has the other efforts
_N_FOLDS = 5
MIN_ROWS_FOR_CHECK = 10


# --- blends -----------------------------------------------------------------------------------


def _make_blend(options: FitOptions, data: TrainingData) -> AutoTwinRegressor:
    blend = AutoTwinRegressor(effort=options.effort, random_state=options.seed, verbose=1)
    return blend.set_params(n_jobs=options.jobs or cpu_count(), cv=data.cv)


def fit_targets(options: FitOptions, data: TrainingData) -> tuple[TwinMethods, Facts]:
    """Return a model of several targets, and the errors of its members for each of them."""
    start, model = time.perf_counter(), _make_blend(options, data)
    model.set_params(time_budget=options.seconds)
    with messages.progress_lines() as begin_step:
        begin_step("fitting the members of the blends")
        model.fit(data.X, pd.DataFrame(data.y, columns=options.targets), groups=data.groups)
    boards = [comparison_table(blend, blend, IDENTITY) for blend in model.targets_]
    return model, {
        **_blend_facts(options, start),
        "summary": "",
        "leaderboard": dict(zip(options.targets, map(leaderboard_content, boards), strict=True)),
        "skipped": {
            f"{name} of {blend.target_name_}": reason
            for blend in model.targets_
            for name, reason in blend.skipped_.items()
        },
    }


def fit_blend(options: FitOptions, data: TrainingData) -> tuple[TwinMethods, Facts]:
    """Return the recommended model of a blend, as `twinned advise` does, and its results."""
    transform = TargetTransform(options.log_target)
    blend, start = _make_blend(options, data), time.perf_counter()
    with messages.progress_lines() as begin_step:
        begin_step("fitting the members of the blend")
        arguments = {"X": data.X, "y": data.y, "groups": data.groups, **data.arguments}
        DiagnosedRows.validate(blend, transform, **arguments).fit(blend, transform, options.seconds)
        recommendation, twin = choose_model(blend, transform)
    return TransformedTargetTwin.around(twin) if options.log_target else twin, {
        **_blend_facts(options, start),
        "summary": recommendation.summary,
        "conclusion": recommendation.conclusion,
        "recommended": dict(zip(twin.member_names_, twin.member_weights_.tolist(), strict=True)),
        "leaderboard": leaderboard_content(comparison_table(blend, twin, transform)),
        "skipped": blend.skipped_,
        "batches": batch_content(twin),
    }


def _blend_facts(options: FitOptions, start: float) -> Facts:
    """Return what is printed of every blend, whose fit began at `start`."""
    seconds = round(time.perf_counter() - start, 3)
    return {"check": None, "seconds": seconds, "effort": options.effort, "budget": options.seconds}


# --- single twins -----------------------------------------------------------------------------


def make_twin(options: FitOptions, n_rows: int, missing_values: bool = False) -> TwinMethods:
    """Return an unfitted twin; it uses at most `n_rows` nearest anchors, as folds are small."""
    anchors: str | NearestAnchors = "all"
    if options.n_anchors is not None:
        metric = "nan_euclidean" if missing_values else "euclidean"
        anchors = NearestAnchors(min(options.n_anchors, n_rows), metric=metric)
    if options.model == "neural":
        from twinned import TwinNeuralRegressor

        twin: BaseEstimator = TwinNeuralRegressor(effort=NEURAL_EFFORT)
    else:
        twin = TwinRegressor(_base_estimator(options.model))
    pairs = int(options.pairs) if options.pairs.isdecimal() else options.pairs
    if (options.model, pairs) == ("knn", "auto"):
        pairs = NEIGHBOR_PARTNERS
    twin.set_params(
        pairs=pairs, anchors=anchors, n_jobs=options.jobs or 1, random_state=options.seed
    )
    return TransformedTargetTwin(twin) if options.log_target else twin


def _base_estimator(model: str) -> BaseEstimator | None:
    estimators = {
        "forest": ensemble.RandomForestRegressor(100, min_samples_leaf=2),
        "extra-trees": ensemble.ExtraTreesRegressor(100, min_samples_leaf=2),
        "boost": ensemble.HistGradientBoostingRegressor(),
        "knn": make_pipeline(StandardScaler(), KNeighborsRegressor()),
        "ridge": make_pipeline(StandardScaler(), Ridge()),
    }
    return estimators.get(model)  # None for the default twin


def _make_plain(options: FitOptions, X: pd.DataFrame, twin: BaseEstimator) -> BaseEstimator:
    """Return the unfitted base estimator of a fitted twin for y itself.

    The settings are those of the twin; categories are one-hot encoded.
    """
    plain = plain_estimator(twin, len(twin.anchors_y_), options.seed)
    if options.model != "neural":
        one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        categorical = list(X.select_dtypes("category").columns)
        encoder = make_column_transformer((one_hot, categorical), remainder="passthrough")
        plain = make_pipeline(encoder, plain)
    if not options.log_target:
        return plain
    return TransformedTargetRegressor(plain, func=np.log, inverse_func=np.exp)


def fit_twin(options: FitOptions, data: TrainingData) -> tuple[TwinMethods, Facts]:
    """Return a fitted twin, with the seconds of its fit and the errors of its cross-validation."""
    known_rows = np.flatnonzero(data.is_known)
    make = partial(make_twin, options, missing_values=bool(data.X.isna().any(axis=None)))
    twin = make(len(known_rows))
    folds = _folds_of_check(options, data, known_rows)
    with messages.progress_bar(1 + len(folds)) as begin_step:
        begin_step("fitting")
        start = time.perf_counter()
        _fit_rows(data, twin, slice(None))
        seconds = round(time.perf_counter() - start, 3)
        if data.groups is not None:
            codes = encode_groups(data.groups, len(data.y))
            twin = twin.with_fitted(replace_groups(twin.fitted_, codes))
        results: Facts = {"check": None, "summary": ""}
        if folds:
            with warnings.catch_warnings():
                # a fold may lack a category, which the saved model knows
                warnings.simplefilter("ignore", UnknownCategoryWarning)
                twin, results = _cross_validate(options, data, folds, twin, make, begin_step)
    return twin, results | {"seconds": seconds}


def _folds_of_check(options: FitOptions, data: TrainingData, known_rows: np.ndarray) -> Folds:
    """Return the folds of the known rows, none without a cross-validation."""
    if not options.check or len(known_rows) < MIN_ROWS_FOR_CHECK:
        return []
    if data.groups is None:
        return row_folds(len(known_rows), _N_FOLDS, options.seed, None)
    groups = data.groups[known_rows]
    if data.cv is not None:
        return list(data.cv.split(known_rows, groups=groups))
    return row_folds(
        len(known_rows), _N_FOLDS, options.seed, encode_groups(groups, len(known_rows))
    )


def _fit_rows(data: TrainingData, model: BaseEstimator, rows: np.ndarray | slice) -> None:
    """Fit a twin to rows of the training data."""
    arguments = {name: values[rows] for name, values in data.arguments.items()}
    model.fit(data.X.iloc[rows], data.y[rows], **arguments)


def _cross_validate(
    options: FitOptions,
    data: TrainingData,
    folds: Folds,
    twin: TwinMethods,
    make: Callable[[int], TwinMethods],
    begin_step: Callable[[str], None],
) -> tuple[TwinMethods, Facts]:
    """Return a fitted twin with its calibration, and the errors of held-out rows.

    `folds` are those of the known rows; the twins of all folds are fitted to the rows with a
    limit, too. `make` makes an unfitted twin for a number of rows. The errors are the RMSE over all
    held-out rows of the twin, of the plain base estimator and of the mean of the other rows.
    """
    known_rows = np.flatnonzero(data.is_known)
    X, y = data.X.iloc[known_rows], data.y[known_rows]
    by_twin, by_plain, by_mean = np.full((3, len(y)), np.nan)
    models = []
    for number, (train, test) in enumerate(folds, start=1):
        begin_step(f"cross-validation, fold {number} of {len(folds)}")
        model = make(len(train))
        _fit_rows(data, model, np.append(known_rows[train], _censored_rows(data, known_rows[test])))
        plain = _make_plain(options, X, split_target(model)[0]).fit(X.iloc[train], y[train])
        by_twin[test] = model.predict(X.iloc[test])
        by_plain[test] = plain.predict(X.iloc[test])
        by_mean[test] = y[train].mean()
        models.append(model)
    y_std = data.arguments.get("y_std")
    errors = cross_errors(
        models, twin, X, y, folds, y_std=None if y_std is None else y_std[known_rows]
    )
    fitted = twin.fitted_
    # else it has those of the folds of its own fit, which do not hold out groups
    if fitted.residuals is None or data.groups is not None:
        predicted = np.full(len(y), np.nan)
        predicted[errors.rows] = fitted.target.apply(y)[errors.rows] - errors.errors
        fitted = with_residuals(fitted, predicted)
    calibration = errors.calibrate("learned", options.seed, np.arange(len(y)))
    rows = errors.rows
    by_twin, by_plain, by_mean, y = by_twin[rows], by_plain[rows], by_mean[rows], y[rows]
    mean = predict_mean(y) if data.cv is None else by_mean  # as in `twinned advise`
    check = {
        "folds": len(folds),
        "plain": describe_estimator(
            plain_estimator(split_target(twin)[0], len(known_rows), options.seed)
        ),
        "rmse_twin": rmse(by_twin, y),
        "rmse_plain": rmse(by_plain, y),
        "rmse_mean": rmse(mean, y),
    }
    results = {"check": check, "summary": describe_failure(by_twin, y, mean)}
    return twin.with_fitted(replace(fitted, calibration=calibration)), results


def _censored_rows(data: TrainingData, held_out: np.ndarray) -> np.ndarray:
    """Return the rows with a limit that a fold is fitted to.

    They are in no group of the held-out rows, or before these.
    """
    censored = np.flatnonzero(~data.is_known)
    if data.groups is None:
        return censored
    groups, held_out_groups = data.groups[censored], data.groups[held_out]
    if data.cv is not None:
        return censored[groups < held_out_groups.min()]
    return censored[~np.isin(groups, held_out_groups)]
