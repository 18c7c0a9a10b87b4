"""`twinned fit`: fit a blend or a twin to a table, cross-validate it and save it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from twinned.app.cli import messages
from twinned.app.cli.options import (
    AsJson,
    TrainingOptions,
    advanced_option,
    check_output_path,
    output_option,
    seed_option,
)

if TYPE_CHECKING:
    from twinned.app.cli.training_data import TrainingData

_MODELS = ("auto", "twin", "forest", "ridge", "neural")


@dataclass(frozen=True, kw_only=True)
class FitOptions(TrainingOptions):
    """Fit a model to a table and save it.

    The table is a CSV, Excel or Parquet file. Separator, encoding, decimal commas, thousands
    separators, the sheet and the row with the names of the columns are detected and reported.
    Columns of text become categorical features. Row counters, texts that differ in most rows and
    dates are not used; a note names each and the option that uses it. A missing value is an empty
    cell, NA, n/a, NaN, null, None, ? or -. A cell such as <5 of a feature is read as half the
    limit, and a further feature marks it. In the target, <5 and >100 are censored labels: values
    that are only known to lie below or above a limit; <5 is at least 0 if all values are positive.
    Rows without a value of the target or of any feature are not used.

    Twins, networks, trees, Gaussian processes and ridge regression are cross-validated on the same
    folds and blended; the output has their errors and whether twins help. The model is the one that
    twinned advise recommends within the same time; without its checks and report, there is a little
    more time for the members. Of several targets, each has a blend of all members, on the same
    folds. With another --model, a single twin is fitted and cross-validated.

    For example:

        twinned fit houses.csv --target price -o houses.twin

        twinned fit houses.csv --target price --log-target --drop id -o houses.twin

        twinned fit houses.csv --target price --budget 10m -o houses.twin

        twinned fit houses.csv --target price --model forest -c postcode -o houses.twin

        twinned fit sales.xlsx --sheet 2024 --target price --date sold --group street -o sales.twin

        twinned fit assay.csv --target content --batch laboratory -o assay.twin

    Parameters
    ----------
    output
        File of the model, such as model.twin.
    model
        auto, the model that twinned advise recommends: a blend of twins, networks, trees, Gaussian
        processes and ridge regression, or one of them; or twin, a twin of gradient boosting; or the
        base estimator of another twin: forest, ridge, neural.
    pairs
        The training pairs: all, M random partners for each row, or auto, which bounds time and
        memory.
    budget
        With --model auto: about how long the fit may take. Members that would take too long are
        fitted with less effort or skipped; from 30 minutes on, they have more effort. The default
        is 5 minutes.
    jobs
        Number of threads; the default is all cores for --model auto, and 1 for twins.
    seed
        The same seed gives the same model, if the same members fit into the time.
    check
        Cross-validate a twin, which takes several times as long as the fit. Prediction intervals
        need it. --model auto always does.
    """

    output: Annotated[Path, output_option()]
    model: Annotated[str, typer.Option("--model", "-m", metavar="NAME")] = "auto"
    default_budget: ClassVar[str] = "5m"
    pairs: Annotated[str, advanced_option(metavar="auto|all|M")] = "auto"
    jobs: Annotated[int | None, advanced_option("--jobs", "-j", min=1, metavar="N")] = None
    seed: Annotated[int, seed_option()] = 0
    check: Annotated[bool, advanced_option("--check/--no-check", metavar="")] = True
    as_json: AsJson = False

    @property
    def is_blend(self) -> bool:
        return self.model == "auto"

    def validate(self) -> None:
        """Raise a ValueError for values that no table allows."""
        if self.model not in _MODELS:
            raise ValueError(f"--model must be one of {', '.join(_MODELS)}, not {self.model}.")
        for option, value in (("budget", self.budget), ("batch", self.batch)):
            if value and not self.is_blend:
                raise ValueError(f"--{option} needs --model auto.")
        single = not self.is_blend or self.log_target or self.error
        if len(self.targets) > 1 and (single or self.batch):
            raise ValueError(
                "several targets need --model auto, without --log-target, --error, --batch and "
                "limits."
            )
        if self.is_blend and self.pairs != "auto":
            twin = "use a twin, such as --model twin"
            raise ValueError(f"--pairs does not apply to --model auto; {twin}.")
        if self.pairs not in ("auto", "all") and not (self.pairs.isdecimal() and int(self.pairs)):
            choices = "auto, all or a positive whole number"
            raise ValueError(f"--pairs must be {choices}, not {self.pairs!r}.")
        _ = self.seconds


def fit_command(options: FitOptions) -> None:
    """Fit a model to a table and save it."""
    from twinned import save
    from twinned.app.cli import fitting
    from twinned.app.cli.summary import format_fit
    from twinned.app.cli.training_data import read_training_data
    from twinned.estimators.target import split_target

    with messages.print_warnings():
        options.validate()
        path = check_output_path(options.output, [options.table])
        data = read_training_data(options)
        messages.print_notes(data.notes)
        _check_data(options, data)
        is_single = len(options.targets) == 1
        fit = fitting.fit_targets
        if is_single:
            fit = fitting.fit_blend if options.is_blend else fitting.fit_twin
        model, results = fit(options, data)
        twin, _ = split_target(model)
        twin.batch_name_ = options.batch
        if is_single:
            twin.target_name_ = options.target
            _ = model.fitted_.anchors.metric  # learned now, so that it is saved
        save(model, path)
    if options.check and not options.is_blend and results["check"] is None:
        few = f"limits in the target, or with fewer than {fitting.MIN_ROWS_FOR_CHECK} rows"
        note = f"a twin is not cross-validated with {few}; --model auto is."
        messages.print_message("note", note)
    facts = _data_facts(options, data) | {
        "pairs": None if options.is_blend else twin.n_pairs_,
        "anchors": len(model.anchors_y_) if is_single else len(data.X),
        "seed": options.seed,
        **results,
        "output": str(options.output),
        "bytes": path.stat().st_size,
    }
    text = format_fit(facts, data)
    if sys.stdout.isatty():
        option = "--interval 0.9" if facts["check"] or options.is_blend else "--std"
        text += f"\n\nNext: twinned predict {facts['output']} NEW.csv {option}"
    messages.print_result(facts, text, options.as_json)


def _check_data(options: FitOptions, data: TrainingData) -> None:
    """Raise a ValueError for data that the model refuses."""
    from twinned.app.tables.frames import first_missing

    missing = first_missing(data.table, data.X)
    if missing and options.model == "ridge":
        raise ValueError(f"{missing} has no value, and --model ridge takes none; others do.")


def _data_facts(options: FitOptions, data: TrainingData) -> dict[str, object]:
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
