"""`twinned fit`: fit a blend or a twin to a table, cross-validate it and save it."""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from twinned.app.cli import options
from twinned.app.cli._errors import exit_on_bad_input, print_message, print_warnings, printable
from twinned.app.cli._progress import progress_bar, progress_lines
from twinned.app.cli.blend_summary import blend_facts, blend_lines, rounded
from twinned.app.cli.model_options import (
    BLEND_EFFORT,
    BLEND_MINUTES,
    EFFORTS,
    MODELS,
    MODELS_ALLOWING_NAN,
    N_FOLDS,
    ModelOptions,
)
from twinned.app.cli.training_data import TrainingData, TrainingOptions, read_training_data
from twinned.app.tables import ColumnKinds, ReadOptions, first_missing
from twinned.exceptions import SkippedMemberWarning

MIN_ROWS_FOR_CHECK = 10


def fit_command(
    table: options.Table,
    target: options.Target,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File of the model, such as model.twin.")
    ],
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="auto, a blend of twins, networks, trees, Gaussian processes and ridge "
            "regression; or twin, a twin of gradient boosting; or the base estimator of another "
            f"twin: {', '.join(name for name in MODELS if name not in ('auto', 'twin'))}.",
            metavar="NAME",
        ),
    ] = "auto",
    log_target: options.LogTarget = False,
    lower_bound: options.LowerBound = None,
    categorical: options.Categorical = None,
    numeric: options.Numeric = None,
    date: options.Date = None,
    drop: options.Drop = None,
    group: options.Group = None,
    label: options.Label = None,
    pairs: Annotated[
        str,
        typer.Option(
            "--pairs",
            help="The training pairs: all, M random partners for each row, or auto, which bounds "
            "time and memory (8 partners for knn).",
            metavar="auto|all|M",
        ),
    ] = "auto",
    anchors: Annotated[
        str,
        typer.Option(
            "--anchors",
            help="The anchors of a prediction: all rows, or the K nearest. Distances are computed "
            "on the columns as they are, so scale them first.",
            metavar="all|K",
        ),
    ] = "all",
    effort: Annotated[
        str | None,
        typer.Option(
            "--effort",
            help=f"With --model auto: fast, balanced or thorough; the default is {BLEND_EFFORT}.",
            metavar="NAME",
        ),
    ] = None,
    time_budget: Annotated[
        str | None,
        typer.Option(
            "--time-budget",
            help="With --model auto: about how long the fit may take. Members that would take too "
            "long are fitted with less effort or skipped. The default is "
            f"{BLEND_MINUTES} minutes.",
            metavar="60s|2min",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            help="Number of threads; the default is all cores for --model auto, and 1 for twins.",
            metavar="N",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            help="The same seed gives the same model, if the same members fit into the time.",
            metavar="N",
        ),
    ] = 0,
    separator: options.Separator = None,
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    check: Annotated[
        bool,
        options.flag_option(
            "--check/--no-check",
            help="Cross-validate a twin and its plain base estimator, which takes several times "
            "as long as the fit. Prediction intervals need it. --model auto always does.",
        ),
    ] = True,
    key_file: options.KeyFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Fit a model to a table and save it.

    The table is a CSV, Excel or Parquet file. Separator, encoding, decimal commas and thousands
    separators are detected and reported. Columns of text become categorical features. Row counters,
    texts that differ in most rows and dates are not used; a note names each and the option that
    uses it. A missing value is an empty cell, NA, n/a, NaN, null, None, ? or -. A cell such as <5
    of a feature is read as half the limit, and a further feature marks it. In the target,
    <5 and >100 are censored labels: values that are only known to lie below or above a limit; <5 is
    at least 0 if all values are positive. Rows without a value of the target are not used.

    Twins, networks, trees, Gaussian processes and ridge regression are
    cross-validated on the same folds and blended; the output has their errors and whether twins
    help. With another --model, a single twin is fitted and compared with its plain base estimator.

    For example:

        twinned fit houses.csv --target price -o houses.twin

        twinned fit houses.csv --target price --log-target --drop id -o houses.twin

        twinned fit houses.csv --target price --effort balanced --time-budget 10min -o houses.twin

        twinned fit houses.csv --target price --model forest -c postcode -o houses.twin

        twinned fit sales.xlsx --sheet 2024 --target price --date sold --group street -o sales.twin
    """
    with exit_on_bad_input(), print_warnings():
        if model not in MODELS:
            raise ValueError(f"--model must be one of {', '.join(MODELS)}, not {model}.")
        if effort not in (None, *EFFORTS):
            raise ValueError(f"--effort must be one of {', '.join(EFFORTS)}, not {effort}.")
        pair_option = _parse_count("--pairs", pairs, ("auto", "all"))
        anchor_option = _parse_count("--anchors", anchors, ("all",))
        _check_applicable(
            model,
            {"--pairs": pairs != "auto", "--anchors": anchors != "all"},
            {"--effort": effort, "--time-budget": time_budget},
        )
        seconds_allowed = options.parse_seconds(
            "--time-budget", f"{BLEND_MINUTES}m" if time_budget is None else time_budget
        )
        options.check_seed(seed)
        key = options.read_key(key_file)
        resolved = options.check_output_path(output, [table])
        reading = ReadOptions(separator, decimal, thousands, encoding, sheet)
        kinds = ColumnKinds(categorical or (), numeric or (), date or ())
        training = TrainingOptions(
            target, log_target, drop or [], group, label, kinds, reading, lower_bound
        )
        data = read_training_data(table, training)
        X = data.X
        for note in data.notes:
            print_message("note", note)
        from joblib import cpu_count

        n_known = len(X) - data.n_censored
        if isinstance(anchor_option, int) and anchor_option > n_known:
            raise ValueError(f"--anchors {anchors} exceeds the {n_known} rows of {table}.")
        missing = first_missing(data.table, X)
        if missing and model not in MODELS_ALLOWING_NAN:
            raise ValueError(
                f"{missing} has no value, and --model {model} takes no missing values; "
                f"{', '.join(MODELS_ALLOWING_NAN)} do."
            )
        chosen = ModelOptions(
            model,
            log_target,
            pair_option,
            anchor_option,
            seed,
            bool(missing),
            jobs or (cpu_count() if model == "auto" else 1),
            effort or BLEND_EFFORT,
            seconds_allowed,
        )
        if not log_target:
            _note_logarithm(data)
        fitted, seconds, scores = _fit(chosen, data, check)
        twin = fitted.regressor_ if log_target else fitted
        twin.target_name_ = target
        _ = twin.fitted_.anchors.metric  # learned now, so that it is saved

        from twinned import save

        save(fitted, resolved, key=key)
    if check and scores is None and model != "auto":
        few = f"{n_known} rows are too few for cross-validation, which needs {MIN_ROWS_FOR_CHECK}."
        print_message("note", few)
    categories = {
        name: len(X[name].cat.categories) for name in X.columns if X[name].dtype == "category"
    }
    facts = {
        "table": str(table),
        "rows": len(X),
        "censored_rows": data.n_censored,
        "dropped_rows": data.n_dropped,
        "target": target,
        "log_target": log_target,
        "numbers": [name for name in X.columns if name not in categories],
        "categories": categories,
        "model": model,
        "pairs": getattr(twin, "n_pairs_", None),
        "anchors": anchor_option if isinstance(anchor_option, int) else len(twin.anchors_y_),
        "seed": seed,
        "seconds": round(seconds, 3),
        "check": scores,
        "output": str(output),
        "bytes": resolved.stat().st_size,
    }
    if model == "auto":
        facts |= blend_facts(twin)
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
    else:
        _print_summary(facts)


def _note_logarithm(data: TrainingData) -> None:
    """Print the finding that the logarithm of the target is predicted better, if it is."""
    from twinned.diagnostics.data_checks import suggest_logarithm

    known = data.y == data.y  # NaN differs from itself
    finding = suggest_logarithm(data.X[known], data.y[known])
    if finding is not None:
        print_message("note", str(finding))


def _check_applicable(model: str, of_twins: dict[str, Any], of_blends: dict[str, Any]) -> None:
    """Raise a ValueError for an option that is given and does not apply to the model."""
    is_blend = model == "auto"
    for option, given in (of_twins if is_blend else of_blends).items():
        if given:
            other = "does not apply to --model auto; use a twin, such as --model twin"
            raise ValueError(f"{option} {other if is_blend else 'needs --model auto'}.")


def _parse_count(option: str, value: str, names: tuple[str, ...]) -> str | int:
    if value in names:
        return value
    if value.isdecimal() and int(value) > 0:
        return int(value)
    choices = ", ".join(names)
    raise ValueError(f"{option} must be {choices} or a positive whole number, not {value!r}.")


def _fit(
    chosen: ModelOptions, data: TrainingData, check: bool
) -> tuple[Any, float, dict[str, Any] | None]:
    """Return the fitted twin, the seconds of its fit, and the errors of its cross-validation."""
    import numpy as np

    from twinned.rows.folds import encode_groups, row_folds

    if chosen.model == "auto":
        return *_fit_blend(chosen, data), None
    known = np.flatnonzero(~np.isnan(data.y))
    check = check and len(known) >= MIN_ROWS_FOR_CHECK
    codes = None if data.groups is None else encode_groups(data.groups[known], len(known))
    folds = row_folds(len(known), N_FOLDS, chosen.seed, codes) if check else []
    twin = chosen.make_twin(len(known))  # imports scikit-learn, which should not count as the fit
    y, bounds = data.target_arguments(chosen.log_target)
    with progress_bar(1 + len(folds)) as begin_step:
        begin_step("fitting")
        start = time.perf_counter()
        twin.fit(data.X, y, **bounds)
        seconds = time.perf_counter() - start
        scores = chosen.validate_and_calibrate(data, folds, twin, begin_step) if check else None
    return twin, seconds, scores


def _fit_blend(chosen: ModelOptions, data: TrainingData) -> tuple[Any, float]:
    """Return the fitted blend and the seconds of its fit; a line for each member is on stderr."""
    blend = chosen.make_twin(len(data.X))
    groups = {} if data.groups is None else {"groups": data.groups}
    y, bounds = data.target_arguments(chosen.log_target)
    start = time.perf_counter()
    with progress_lines() as begin_step, warnings.catch_warnings():
        warnings.simplefilter("ignore", SkippedMemberWarning)  # they are in the summary
        begin_step("fitting the members of the blend")
        blend.fit(data.X, y, **groups, **bounds)
    return blend, time.perf_counter() - start


def _print_summary(facts: dict[str, Any]) -> None:
    def echo(heading: str, text: str) -> None:
        typer.echo(printable(f"{heading:<12} {text}"))

    limits = f", {facts['censored_rows']:,} with a limit" if facts["censored_rows"] else ""
    echo("table", f"{facts['table']}, {_counted(facts['rows'], 'row')}{limits}")
    echo("target", facts["target"] + (" (its logarithm is fitted)" if facts["log_target"] else ""))
    if facts["numbers"]:
        echo("numeric", _listed(facts["numbers"]))
    if facts["categories"]:
        counts = facts["categories"].items()
        described = [f"{name} ({n} {'category' if n == 1 else 'categories'})" for name, n in counts]
        echo("categorical", _listed(described))
    if facts["model"] == "auto":
        members = _counted(len(facts["leaderboard"]), "member")
        echo("model", f"auto ({facts['effort']}), {members} in {facts['seconds']:.1f} s")
        for line in blend_lines(facts):
            echo(*line)
    else:
        nearest = "nearest " if facts["anchors"] < facts["rows"] - facts["censored_rows"] else ""
        pairs = f"{_counted(facts['pairs'], 'pair')} in {facts['seconds']:.1f} s"
        anchors = f"{facts['anchors']:,} {nearest}anchors"
        echo("model", f"{facts['model']}, fitted to {pairs}, predicts from {anchors}")
    if facts["check"]:
        echo("check", f"RMSE of held-out rows, {facts['check']['folds']}-fold cross-validation:")
        names = ("twin", f"plain {MODELS[facts['model']]}", "mean of y")
        for name, key in zip(names, ("rmse_twin", "rmse_plain", "rmse_mean"), strict=True):
            echo("", f"  {name:<{max(map(len, names))}}  {rounded(facts['check'][key])}")
        echo("", f"  (plain: {facts['check']['plain']})")
    size = facts["bytes"]
    shown = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(1, size // 1000)} kB"
    echo("saved", f"{facts['output']} ({shown})")
    if sys.stdout.isatty():
        has_intervals = facts["check"] or facts["model"] == "auto"
        option = "--interval 0.9" if has_intervals else "--std"
        typer.echo(f"\nNext: twinned predict {facts['output']} NEW.csv {option}")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"{len(names)}: {', '.join(names[:12])}{more}"
