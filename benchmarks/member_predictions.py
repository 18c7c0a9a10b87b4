"""Predictions of the members of `AutoTwinRegressor` for many splits: the networks on a GPU.

A fit of `AutoTwinRegressor` on a CPU takes minutes, most of them for networks. Here the networks of
all splits are trained as a few programs on a GPU, and the other members are fitted in processes.
Out-of-fold and test predictions of each member are written to one file for each split, and
`benchmarks.accuracy_auto --predictions FOLDER` makes the blends of them. They are the members that
`fit` itself would fit, to rounding.

    python -m benchmarks.member_predictions --kind others --jobs 16 --output FOLDER
    python -m benchmarks.member_predictions --kind networks --jobs 16 --output FOLDER
"""

import io
import time
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from joblib import Parallel, delayed

from benchmarks.tables import split_table
from paper import harness
from twinned import AutoTwinRegressor
from twinned.datasets import KEYS, PAPER_SEEDS
from twinned.estimators.blending.members import (
    AUTO,
    FeaturePreparation,
    FitContext,
    MemberSettings,
    MemberSpec,
)
from twinned.estimators.blending.plan import MemberFits
from twinned.estimators.blending.rows import blend_rows
from twinned.rows.training import TrainingRows, validate_training_rows
from twinned.rows.validation import draw_seed, validate_table

NETWORKS = ("neural_twin", "neural")
# With the same folds, these do not depend on whether the effort is "balanced" or "thorough".
_SAME = ("ridge", "gp_matern", "gp_rbf", "tree_twin")


class PreparedBlend(NamedTuple):
    """An `AutoTwinRegressor` that has its rows and folds, but no members."""

    model: AutoTwinRegressor
    specs: list[MemberSpec]
    rows: TrainingRows
    context: FitContext

    def encode(self, X):
        """Return the encoded rows of a table, as members take them."""
        return validate_table(self.model, X, self.rows.schema, np.dtype(np.float64))[0]


class MemberPredictions(NamedTuple):
    """Predictions of the training rows (out of fold) and the test rows, and seconds of the fits."""

    out_of_fold: np.ndarray
    test: np.ndarray
    seconds: float


def prepare(effort, X, y):
    """Return the blend of one split before its members are fitted: the first steps of `fit`."""
    model = AutoTwinRegressor(effort=effort, random_state=0)
    specs, seed = model.check_parameters(), draw_seed(model.random_state)
    dtype = np.dtype(np.float64)
    data = validate_training_rows(model, X, y, pair_dtype=dtype, multi_output=False)
    rows = blend_rows(data, model.cv, effort, seed).rows
    return PreparedBlend(model, specs, rows, FitContext(seed, model.memory_limit, 1))


def predict_others(dataset, seed, effort, names):
    """Fit members that are not networks; return their predictions by name."""
    (X, y), (X_test, _) = split_table(dataset, seed)
    blend = prepare(effort, X, y)
    specs = [spec for spec in blend.specs if spec.name in names]
    fits = MemberFits(blend.rows, blend.context, report=lambda result: None)
    matrix = blend.encode(X_test)
    return {
        result.spec.label: MemberPredictions(
            result.prediction, result.member.predict(matrix), result.fit_seconds
        )
        for result in fits.run(specs)
    }


class NetworkProblem(NamedTuple):
    """What the networks of one split are trained on, and the features to predict."""

    estimator: Any
    problem: Any  # a TrainingProblem
    test: np.ndarray


def build_networks(dataset, seed, effort):
    """Return the problem of each kind of network by name."""
    from twinned.models.neural.problem import build_problem

    (X, y), (X_test, _) = split_table(dataset, seed)
    blend = prepare(effort, X, y)
    rows, problems = blend.rows, {}
    for spec in blend.specs:
        if spec.name in NETWORKS:
            preparation = FeaturePreparation.fit(spec.inputs, rows.schema, rows.matrix)
            # the seed of a member depends on its name, as in `fit_member`
            member_seed = (blend.context.seed + crc32(spec.name.encode())) % 2**31
            shared = rows.n_folds, blend.context.memory_limit, 1, rows.schema
            settings = MemberSettings(effort, member_seed, *shared, preparation, len(rows))
            estimator = spec.make(settings)
            features = preparation.transform(rows.matrix)
            problem = build_problem(
                estimator,
                features,
                rows.y,
                rows.weight,
                fold_of_row=rows.fold,
            )
            test = preparation.transform(blend.encode(X_test))
            problems[spec.name] = NetworkProblem(estimator, problem, test)
    return problems


def predict_networks(problems):
    """Train the networks of all splits together; return the predictions of each split."""
    from twinned.models.neural.fitting import fit_problems

    start = time.perf_counter()
    ensembles = fit_problems([own.problem for own in problems])
    seconds = (time.perf_counter() - start) / len(problems)
    predictions = []
    for own, ensemble in zip(problems, ensembles, strict=True):
        estimator = own.estimator
        estimator.set_networks(own.problem, ensemble)
        estimator.n_features_in_ = own.test.shape[1]
        predictions.append(
            MemberPredictions(
                estimator.out_of_fold_prediction_, estimator.predict(own.test), seconds
            )
        )
    return predictions


def prediction_file(folder, dataset, seed, effort, member):
    return Path(folder) / f"{dataset.replace(' ', '_')}.{seed}.{effort}.{member}.npz"


def write_predictions(folder, dataset, seed, effort, member, predictions):
    buffer = io.BytesIO()
    np.savez(buffer, **predictions._asdict())
    path = prediction_file(folder, dataset, seed, effort, member)
    harness.write_file(path, buffer.getvalue())


def read_predictions(folder, dataset, seed, effort, member):
    path = prediction_file(folder, dataset, seed, effort, member)
    if not path.exists() and member in _SAME:
        path = prediction_file(folder, dataset, seed, "thorough", member)
    with np.load(path) as file:
        return MemberPredictions(file["out_of_fold"], file["test"], float(file["seconds"]))


def has_same_folds(dataset, seed):
    """Return whether the folds of "balanced" are those of "thorough"."""
    (X, y), _ = split_table(dataset, seed)
    return len({prepare(effort, X, y).rows.n_folds for effort in ("balanced", "thorough")}) == 1


def run_others(trials, arguments):
    """Fit the members that are not networks; those that are equal for two efforts only once."""
    efforts = arguments.efforts
    both = {"balanced", "thorough"} <= set(efforts)

    def run(dataset, seed, effort):
        names = [name for name in AUTO if name not in NETWORKS]
        if both and effort == "balanced" and has_same_folds(dataset, seed):
            names = [name for name in names if name not in _SAME]
        missing = [
            name
            for name in names
            if not prediction_file(arguments.output, dataset, seed, effort, name).exists()
        ]
        if missing:
            for name, own in predict_others(dataset, seed, effort, missing).items():
                write_predictions(arguments.output, dataset, seed, effort, name, own)
        return dataset, seed, effort

    tasks = [delayed(run)(*trial, effort) for trial in trials for effort in efforts]
    finished = Parallel(n_jobs=arguments.jobs, return_as="generator_unordered")(tasks)
    for number, done in enumerate(finished, 1):
        harness.print_progress(number, len(tasks), done)


def run_networks(trials, arguments):
    """Train the networks of all splits, those of one effort and kind together."""
    start = time.perf_counter()
    for effort in arguments.efforts:
        tasks = [delayed(build_networks)(*trial, effort) for trial in trials]
        built = Parallel(n_jobs=arguments.jobs)(tasks)
        print(f"built in {time.perf_counter() - start:.0f} s", flush=True)
        for name in NETWORKS:
            own = [
                (trial, problems[name])
                for trial, problems in zip(trials, built, strict=True)
                if not prediction_file(arguments.output, *trial, effort, name).exists()
            ]
            if own:
                predicted = predict_networks([problem for _, problem in own])
                for (trial, _), predictions in zip(own, predicted, strict=True):
                    write_predictions(arguments.output, *trial, effort, name, predictions)
                print(f"{name}, {effort}: {time.perf_counter() - start:.0f} s", flush=True)


def main():
    arguments = harness.parse_arguments(
        __doc__,
        kind="others",
        efforts=["thorough", "balanced"],
        datasets=list(KEYS),
        seeds=list(PAPER_SEEDS),
        jobs=1,
        output=harness.ROOT / "out" / "member_predictions",
    )
    arguments.output.mkdir(parents=True, exist_ok=True)
    trials = [(key, seed) for seed in arguments.seeds for key in arguments.datasets]
    {"others": run_others, "networks": run_networks}[arguments.kind](trials, arguments)


if __name__ == "__main__":
    main()
