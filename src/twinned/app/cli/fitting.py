"""Fits of `twinned fit`: blends and single twins, with their cross-validation."""

import time
import warnings

import numpy as np
import pandas as pd
from joblib import cpu_count
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from twinned import AutoTwinRegressor, TwinRegressor
from twinned.app.cli import messages
from twinned.app.cli.fit import FitOptions
from twinned.app.cli.options import Facts
from twinned.app.cli.training_data import TrainingData
from twinned.app.report.collect import batch_content, leaderboard_content
from twinned.diagnostics.diagnosis import DiagnosedRows
from twinned.diagnostics.errors import comparison_table, predict_mean, rmse
from twinned.diagnostics.recommendation import choose_model, describe_failure
from twinned.estimators.base import TwinMethods
from twinned.estimators.conformal import fit_with_held_out_errors, replace_groups, with_calibration
from twinned.estimators.target import TransformedTargetTwin
from twinned.exceptions import UnknownCategoryWarning
from twinned.fitted.target import IDENTITY, TargetTransform
from twinned.rows.folds import encode_groups

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


def make_twin(options: FitOptions) -> BaseEstimator:
    """Return an unfitted twin."""
    if options.model == "neural":
        from twinned import TwinNeuralRegressor

        twin: BaseEstimator = TwinNeuralRegressor(effort=NEURAL_EFFORT)
    else:
        forest = RandomForestRegressor(100, min_samples_leaf=2)
        bases = {"forest": forest, "ridge": make_pipeline(StandardScaler(), Ridge())}
        twin = TwinRegressor(bases.get(options.model))  # None for the default twin
    pairs = int(options.pairs) if options.pairs.isdecimal() else options.pairs
    twin.set_params(pairs=pairs, n_jobs=options.jobs or 1, random_state=options.seed)
    return TransformedTargetTwin(twin) if options.log_target else twin


def fit_twin(options: FitOptions, data: TrainingData) -> tuple[TwinMethods, Facts]:
    """Return a fitted twin, with its errors of held-out rows where it is cross-validated.

    Limits have no error, so that a twin that is fitted to some is not cross-validated.
    """
    twin, start = make_twin(options), time.perf_counter()
    results: Facts = {"check": None, "summary": ""}
    with messages.progress_bar() as begin_step:
        begin_step("fitting")
        if options.check and not data.n_censored and len(data.y) >= MIN_ROWS_FOR_CHECK:
            twin, results = _cross_validate(options, data, twin)
        else:
            twin.fit(data.X, data.y, **data.arguments)
            if data.groups is not None:
                codes = encode_groups(data.groups, len(data.y))
                twin = twin.with_fitted(replace_groups(twin.fitted_, codes))
    return twin, results | {"seconds": round(time.perf_counter() - start, 3)}


def _cross_validate(
    options: FitOptions, data: TrainingData, twin: BaseEstimator
) -> tuple[TwinMethods, Facts]:
    """Return a fitted twin with its calibration, and the errors of held-out rows.

    These are the RMSE over all held-out rows of the twin and of the mean of the other rows.
    """
    with warnings.catch_warnings():
        # a fold may lack a category, which the saved model knows
        warnings.simplefilter("ignore", UnknownCategoryWarning)
        twin, errors = fit_with_held_out_errors(
            twin,
            data.X,
            data.y,
            groups=data.groups,
            cv=data.cv or _N_FOLDS,
            random_state=options.seed,
            **data.arguments,
        )
    anchors, y = np.arange(len(data.y)), data.y[errors.rows]
    calibration = errors.calibrate("learned", options.seed, anchors)
    target = twin.fitted_.target
    predicted = target.invert_mean(target.apply(y) - errors.errors, target.apply(y))
    mean = predict_mean(y)
    if data.cv is not None:  # as in `twinned advise`
        folds = data.cv.split(data.y, groups=data.groups)
        mean = np.concatenate([np.full(len(rows), data.y[train].mean()) for train, rows in folds])
    check = {
        "folds": len(errors.floors),
        "rmse_twin": rmse(predicted, y),
        "rmse_mean": rmse(mean, y),
    }
    results = {"check": check, "summary": describe_failure(predicted, y, mean)}
    return with_calibration(twin, calibration), results
