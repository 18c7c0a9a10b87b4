"""`twinned fit`: fit a blend or a twin to a table, cross-validate it and save it."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
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

from twinned import AutoTwinRegressor, NearestAnchors, TwinRegressor, save
from twinned.app.cli import messages
from twinned.app.cli.advise import batch_lines, leaderboard_lines
from twinned.app.cli.options import MODELS, FitOptions, check_output_path, read_key
from twinned.app.cli.training_data import TrainingData, read_training_data
from twinned.app.report.collect import batch_content, leaderboard_content
from twinned.app.tables.frames import first_missing
from twinned.diagnostics.blend_checks import DiagnosedRows
from twinned.diagnostics.data_checks import suggest_logarithm
from twinned.diagnostics.errors import comparison_table, predict_mean, rmse
from twinned.diagnostics.recommendation import choose_model, describe_estimator, describe_failure
from twinned.diagnostics.row_checks import compare_folds
from twinned.diagnostics.twin_checks import plain_estimator
from twinned.estimators.target import LogTargetRegressor, split_target
from twinned.exceptions import UnknownCategoryWarning
from twinned.fitted.conformal import CrossCalibrated
from twinned.fitted.target import IDENTITY, TargetTransform
from twinned.rows.folds import Folds, encode_groups, row_folds
from twinned.rows.formatting import aligned, format_number

MODELS_ALLOWING_NAN = ("auto", "twin", "forest", "extra-trees", "boost", "neural")
# Random partners for each row of a twin of nearest neighbors with --pairs auto: it searches all
# pairs for each pair that it predicts, which takes minutes for the 90,000 pairs of 300 rows.
NEIGHBOR_PARTNERS = 8
NEURAL_EFFORT = "fast"  # a command should return soon; Python has the other efforts
N_FOLDS = 5
MIN_ROWS_FOR_CHECK = 10
Facts = dict  # what is printed, by name


def fit_command(options: FitOptions) -> None:
    """Fit a model to a table and save it."""
    with messages.print_warnings():
        options.validate()
        key = read_key(options.key_file)
        path = check_output_path(options.output, [options.table])
        data = read_training_data(options)
        messages.print_notes(data.notes)
        _check_data(options, data)
        several = len(options.targets) > 1
        if not options.log_target and not several:
            _note_logarithm(data)
        if data.groups is not None and not several:
            known = data.is_known
            check = compare_folds(data.X[known], data.y[known], data.groups[known], data.cv)
            messages.print_message("note", str(check))
        fit = _fit_targets if several else _fit_blend if options.is_blend else _fit
        fitted, results = fit(options, data)
        twin, _ = split_target(fitted)
        if not several:
            twin.target_name_, twin.batch_name_ = options.target, options.batch
            _ = twin.fitted_.anchors.metric  # learned now, so that it is saved
        save(fitted, path, key=key)
    if options.check and not options.is_blend and results["check"] is None:
        few = f"{len(data.X) - data.n_censored} rows are too few for cross-validation"
        messages.print_message("note", f"{few}, which needs {MIN_ROWS_FOR_CHECK}.")
    facts = _data_facts(options, data) | {
        "pairs": None if options.is_blend else twin.n_pairs_,
        "anchors": options.n_anchors or (len(data.X) if several else len(twin.anchors_y_)),
        "seed": options.seed,
        **results,
        "output": str(options.output),
        "bytes": path.stat().st_size,
    }
    messages.print_result(facts, "\n".join(_summary_lines(facts, data)), options.as_json)


def _check_data(options: FitOptions, data: TrainingData) -> None:
    """Raise a ValueError for data that the model refuses."""
    n_known = len(data.X) - data.n_censored
    if options.n_anchors is not None and options.n_anchors > n_known:
        raise ValueError(f"--anchors {options.anchors} exceeds the {n_known} rows of the table.")
    missing = first_missing(data.table, data.X)
    if missing and options.model not in MODELS_ALLOWING_NAN:
        others = f"--model {options.model} takes none; {', '.join(MODELS_ALLOWING_NAN)} do"
        raise ValueError(f"{missing} has no value, and {others}.")


def _note_logarithm(data: TrainingData) -> None:
    """Print the finding that the logarithm of the target is predicted better, if it is."""
    finding = suggest_logarithm(data.X[data.is_known], data.y[data.is_known])
    if finding is not None:
        messages.print_message("note", str(finding))


# --- the model --------------------------------------------------------------------------------


def _make_blend(options: FitOptions, data: TrainingData) -> AutoTwinRegressor:
    blend = AutoTwinRegressor(effort=options.effort, random_state=options.seed, verbose=1)
    return blend.set_params(n_jobs=options.jobs or cpu_count(), cv=data.cv)


def _fit_targets(options: FitOptions, data: TrainingData) -> tuple[BaseEstimator, Facts]:
    """Return a model of several targets, and the errors of its members for each of them."""
    start, model = time.perf_counter(), _make_blend(options, data)
    model.set_params(time_budget=options.seconds)
    with messages.progress_lines() as begin_step:
        begin_step("fitting the members of the blends")
        model.fit(data.X, pd.DataFrame(data.y, columns=options.targets), groups=data.groups)
    boards = [comparison_table(each, each, IDENTITY, {}) for each in model.targets_]
    return model, {
        **_blend_facts(options, start),
        "summary": "",
        "leaderboard": dict(zip(options.targets, map(leaderboard_content, boards), strict=True)),
        "skipped": {
            f"{name} of {each.target_name_}": reason
            for each in model.targets_
            for name, reason in each.skipped_.items()
        },
    }


def _fit_blend(options: FitOptions, data: TrainingData) -> tuple[BaseEstimator, Facts]:
    """Return the recommended model of a blend, as `twinned advise` does, and its results."""
    transform = TargetTransform(options.log_target)
    blend, start = _make_blend(options, data), time.perf_counter()
    with messages.progress_lines() as begin_step:
        begin_step("fitting the members of the blend")
        arguments = {"X": data.X, "y": data.y, "groups": data.groups, **data.arguments}
        DiagnosedRows.validate(blend, transform, **arguments).fit(blend, transform, options.seconds)
        recommendation, twin = choose_model(blend, transform)
    return LogTargetRegressor.around(twin) if options.log_target else twin, {
        **_blend_facts(options, start),
        "summary": recommendation.summary,
        "conclusion": recommendation.conclusion,
        "recommended": dict(zip(twin.member_names_, twin.member_weights_.tolist(), strict=True)),
        "leaderboard": leaderboard_content(comparison_table(blend, twin, transform, {})),
        "skipped": blend.skipped_,
        "batches": batch_content(twin),
    }


def _blend_facts(options: FitOptions, start: float) -> Facts:
    """Return what is printed of every blend, whose fit began at `start`."""
    seconds = round(time.perf_counter() - start, 3)
    return {"check": None, "seconds": seconds, "effort": options.effort, "budget": options.seconds}


def make_twin(options: FitOptions, n_rows: int, missing_values: bool = False) -> BaseEstimator:
    """Return an unfitted twin; it uses at most `n_rows` nearest anchors, as folds are small."""
    anchors: str | NearestAnchors = "all"
    if options.n_anchors is not None:
        metric = "nan_euclidean" if missing_values else "euclidean"
        anchors = NearestAnchors(min(options.n_anchors, n_rows), metric=metric)
    if options.model == "neural":
        from twinned import TwinNeuralRegressor

        twin = TwinNeuralRegressor(effort=NEURAL_EFFORT)
    else:
        twin = TwinRegressor(_base_estimator(options.model))
    pairs = int(options.pairs) if options.pairs.isdecimal() else options.pairs
    if (options.model, pairs) == ("knn", "auto"):
        pairs = NEIGHBOR_PARTNERS
    twin.set_params(
        pairs=pairs, anchors=anchors, n_jobs=options.jobs or 1, random_state=options.seed
    )
    return LogTargetRegressor(twin) if options.log_target else twin


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


def _fit_rows(data: TrainingData, model: BaseEstimator, rows: np.ndarray | slice) -> None:
    """Fit a twin to rows of the training data."""
    arguments = {name: values[rows] for name, values in data.arguments.items()}
    model.fit(data.X.iloc[rows], data.y[rows], **arguments)


def _fit(options: FitOptions, data: TrainingData) -> tuple[BaseEstimator, Facts]:
    """Return the fitted twin, and the seconds of its fit and the errors of its cross-validation."""
    known = np.flatnonzero(data.is_known)
    codes = None if data.groups is None else encode_groups(data.groups[known], len(known))
    make = partial(make_twin, options, missing_values=bool(data.X.isna().any(axis=None)))
    twin, folds = make(len(known)), []
    if options.check and len(known) >= MIN_ROWS_FOR_CHECK:
        folds = row_folds(len(known), N_FOLDS, options.seed, codes)
        if data.cv is not None and data.groups is not None:
            folds = list(data.cv.split(known, groups=data.groups[known]))
    with messages.progress_bar(1 + len(folds)) as begin_step:
        begin_step("fitting")
        start = time.perf_counter()
        _fit_rows(data, twin, slice(None))
        seconds = round(time.perf_counter() - start, 3)
        if codes is not None:
            split_target(twin)[0].set_groups(codes)
        results: Facts = {"check": None, "summary": ""}
        if folds:
            results = _cross_validate(options, data, folds, twin, make, begin_step)
    return twin, results | {"seconds": seconds}


def _cross_validate(
    options: FitOptions,
    data: TrainingData,
    folds: Folds,
    fitted: BaseEstimator,
    make: Callable[[int], BaseEstimator],
    begin_step: Callable[[str], None],
) -> Facts:
    """Cross-validate the twin, the plain base estimator and the mean of the other rows.

    `folds` are those of the known rows; the twins of all folds are fitted to the rows with a
    limit, too. The errors of the held-out rows also calibrate the prediction intervals that are
    stored in `fitted`, the twin of all rows. `make` makes an unfitted twin for a number of rows.

    Returns
    -------
    dict
        `check`: `folds`, the number of folds, the RMSE over all held-out rows of each model,
        `rmse_twin`, `rmse_plain` and `rmse_mean`, and `plain`, the plain base estimator; and
        `summary`, where the twin is no better than the mean.
    """
    censored, known = np.flatnonzero(~data.is_known), np.flatnonzero(data.is_known)
    X, y = data.X.iloc[known], data.y[known]
    (by_twin, by_plain, by_mean, fitted_scale), twins = np.full((4, len(y)), np.nan), []
    with warnings.catch_warnings():
        # A category may be absent from the training rows of a fold; the saved model knows it.
        warnings.simplefilter("ignore", UnknownCategoryWarning)
        for number, (train, test) in enumerate(folds, start=1):
            begin_step(f"cross-validation, fold {number} of {len(folds)}")
            others = censored
            if data.groups is not None:  # in no group of the held-out rows, or before them
                groups, own = data.groups[censored], data.groups[known[test]]
                others = censored[~np.isin(groups, own) if data.cv is None else groups < own.min()]
            model = make(len(train))
            _fit_rows(data, model, np.concatenate([known[train], others]))
            twins.append(split_target(model)[0])
            plain = _make_plain(options, X, twins[-1]).fit(X.iloc[train], y[train])
            by_twin[test], by_plain[test] = model.predict(X.iloc[test]), plain.predict(X.iloc[test])
            in_scale = twins[-1].predict(X.iloc[test]) if options.log_target else by_twin[test]
            fitted_scale[test], by_mean[test] = in_scale, y[train].mean()
        whole, transform = split_target(fitted)
        rows = np.concatenate([test for _, test in folds])
        # else it has those of the folds of its own fit, which do not hold out groups
        if whole.anchor_residuals_ is None or data.groups is not None:
            whole.set_out_of_fold(fitted_scale)
            whole.local_power_ = 0.0
        if whole.fitted_.errors is not None and not whole.fitted_.is_local:  # as it predicts
            by_twin[rows] = transform.invert_mean(fitted_scale[rows], transform.apply(y[rows]))
        if (y_std := data.arguments.get("y_std")) is not None:
            y_std = y_std[known] / transform.slope(y)
        parts = twins, whole, X, transform.apply(y), folds
        CrossCalibrated(*parts, random_state=options.seed, y_std=y_std).store_in()
    by_twin, by_plain, mean, y = by_twin[rows], by_plain[rows], by_mean[rows], y[rows]
    mean = predict_mean(y) if data.cv is None else mean  # as in `twinned advise`
    scores = {
        "folds": len(folds),
        "plain": describe_estimator(plain_estimator(whole, len(known), options.seed)),
        "rmse_twin": rmse(by_twin, y),
        "rmse_plain": rmse(by_plain, y),
        "rmse_mean": rmse(mean, y),
    }
    return {"check": scores, "summary": describe_failure(by_twin, y, mean)}


# --- the results ------------------------------------------------------------------------------


def _data_facts(options: FitOptions, data: TrainingData) -> Facts:
    categories = {name: len(values) for name, values in data.categories.items()}
    return {
        "table": str(options.table),
        "rows": len(data.X),
        "censored_rows": data.n_censored,
        "dropped_rows": data.n_dropped,
        "target": options.targets if len(options.targets) > 1 else options.target,
        "error": options.error,
        "log_target": options.log_target,
        "numbers": [name for name in data.X.columns if name not in categories],
        "categories": categories,
        "model": options.model,
    }


def _blend_lines(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield (heading, text) lines: the errors of all members, and skipped members."""
    yield "model", f"auto ({facts['effort']}), in {facts['seconds']:.1f} s of {facts['budget']:g} s"
    target, boards = facts["target"], facts["leaderboard"]
    for name, board in (boards if isinstance(boards, dict) else {target: boards}).items():
        yield "members", f"RMSE of {name} on held-out rows of the cross-validation:"
        yield from (("", f"  {line}") for line in leaderboard_lines(board))
    yield from (("skipped", f"{name}: {reason}") for name, reason in facts["skipped"].items())
    if facts.get("batches"):
        first, *lines = batch_lines(facts["batches"], facts["log_target"])
        yield from (("batches", first), *(("", line) for line in lines))


def _twin_lines(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield (heading, text) lines: a twin and its cross-validation."""
    nearest = "nearest " if facts["anchors"] < facts["rows"] - facts["censored_rows"] else ""
    pairs = f"{messages.counted(facts['pairs'], 'pair')} in {facts['seconds']:.1f} s"
    anchors = f"{facts['anchors']:,} {nearest}anchors"
    yield "model", f"{facts['model']}, fitted to {pairs}, predicts from {anchors}"
    if not (check := facts["check"]):
        return
    yield "check", f"RMSE of held-out rows, {check['folds']}-fold cross-validation:"
    names = "twin", f"plain {MODELS[facts['model']]}", "mean of y"
    errors = (format_number(check[key]) for key in ("rmse_twin", "rmse_plain", "rmse_mean"))
    yield from (("", f"  {line}") for line in aligned(dict(zip(names, errors, strict=True))))
    yield "", f"  (plain: {check['plain']})"


def _summary_lines(facts: Facts, data: TrainingData) -> Iterator[str]:
    limits = f", {facts['censored_rows']:,} with a limit" if facts["censored_rows"] else ""
    logarithm = " (its logarithm is fitted)" if facts["log_target"] else ""
    lines = [("result", facts["summary"])] if facts["summary"] else []
    lines.append(("table", f"{facts['table']}, {messages.counted(facts['rows'], 'row')}{limits}"))
    target = facts["target"]
    named = target if isinstance(target, str) else ", ".join(target)
    lines.append(("target", named + logarithm))
    lines += data.feature_lines()
    is_blend, size = facts["model"] == "auto", facts["bytes"]
    shown = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(1, size // 1000)} kB"
    lines += _blend_lines(facts) if is_blend else _twin_lines(facts)
    lines.append(("saved", f"{facts['output']} ({shown})"))
    yield from (f"{heading:<12} {text}" for heading, text in lines)
    if sys.stdout.isatty():
        option = "--interval 0.9" if facts["check"] or is_blend else "--std"
        yield f"\nNext: twinned predict {facts['output']} NEW.csv {option}"
