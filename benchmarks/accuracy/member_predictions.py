"""Predictions of the members of `AutoTwinRegressor` for many splits: the networks on a GPU.

A fit of `AutoTwinRegressor` on a CPU takes minutes, most of them for networks. Here the networks of
all splits are trained as a few programs on a GPU, and the other members are fitted in processes.
Out-of-fold and test predictions of each member are written to one file for each split, and
`benchmarks.accuracy.accuracy_auto --predictions FOLDER` makes the blends of them (`StoredBlend`).
They are the members that `fit` itself would fit, to rounding. Members with power transformations
are stored beside the plain ones; one of each two is chosen when the blend is made, as in `fit`.

    python -m benchmarks.accuracy.member_predictions --kind others --jobs 16 --output FOLDER
    python -m benchmarks.accuracy.member_predictions --kind networks --jobs 16 --output FOLDER
    python -m benchmarks.accuracy.member_predictions --kind others --jobs 16 --output FOLDER \\
        --efforts balanced --datasets "uci energy" "uci yacht" --seeds 0 1 2

`--members` restricts the members, and with `--n-jobs` the folds of a member are fitted in threads.
"""

import io
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from joblib import Parallel, delayed

from benchmarks import frame
from benchmarks.accuracy.tables import split_table
from twinned import AutoTwinRegressor
from twinned.datasets import KEYS, PAPER_SEEDS
from twinned.estimators.blending.cross_fit import CrossFit
from twinned.estimators.blending.members import (
    AUTO,
    NETWORK_ANCHORS,
    POWER,
    CrossFittedMember,
    FitSettings,
    MemberSpec,
)
from twinned.estimators.blending.preparation import FeaturePreparation
from twinned.estimators.blending.rows import blend_rows
from twinned.rows.training import TrainingRows, validate_training_rows
from twinned.rows.validation import draw_seed, validate_table

NETWORKS = ("neural_twin", "neural")
# With the same folds, these do not depend on whether the effort is "balanced" or "thorough".
_SAME = ("ridge", "gp_matern", "gp_rbf", "tree_twin")
_SAME = (*_SAME, *(name + POWER for name in _SAME[:3]))


class PreparedBlend(NamedTuple):
    """An `AutoTwinRegressor` that has its rows and folds, but no members."""

    model: AutoTwinRegressor
    specs: list[MemberSpec]
    rows: TrainingRows
    settings: FitSettings

    def encode(self, X):
        """Return the encoded rows of a table, as members take them."""
        return validate_table(self.model, X, self.rows.schema, np.dtype(np.float64))[0]


class MemberPredictions(NamedTuple):
    """Predictions of the training rows (out of fold) and the test rows, and seconds of the fits."""

    out_of_fold: np.ndarray
    test: np.ndarray
    seconds: float


def prepare(effort, X, y, n_jobs=1):
    """Return the blend of one split before its members are fitted: the first steps of `fit`."""
    model = AutoTwinRegressor(effort=effort, random_state=0)
    specs, seed = model.check_parameters(), draw_seed(model.random_state)
    dtype = np.dtype(np.float64)
    data = validate_training_rows(model, X, y, pair_dtype=dtype, multi_output=False)
    rows = blend_rows(data, model.cv, effort, seed).rows
    return PreparedBlend(model, specs, rows, FitSettings(seed, model.memory_limit, n_jobs))


def needed_members(blend):
    """Return the members that `fit` tries on these rows: power transformations where skewed."""
    return CrossFit(blend.rows, blend.settings).without_needless(blend.specs)


def predict_other(dataset, seed, effort, name, n_jobs=1):
    """Fit a member that is not a network; return its predictions, or None if it is not needed."""
    (X, y), (X_test, _) = split_table(dataset, seed)
    blend = prepare(effort, X, y, n_jobs)
    specs = [spec for spec in needed_members(blend) if spec.name == name]
    for member in CrossFit(blend.rows, blend.settings).fit_all(specs):
        predicted = member.predict(blend.encode(X_test))
        return MemberPredictions(member.out_of_fold, predicted, member.fit_seconds)
    return None


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
            preparation = FeaturePreparation.fit(spec.features, rows.schema, rows.matrix)
            # the seed of a member depends on its name, as in `fit_member`
            member_seed = (blend.settings.seed + crc32(spec.name.encode())) % 2**31
            settings = replace(blend.settings, seed=member_seed, n_jobs=1)
            estimator = spec.make(effort, rows, settings)
            features = preparation.transform(rows.matrix)
            problem = build_problem(
                estimator,
                features,
                rows.y,
                rows.weight,
                folds=rows.folds,
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
        if estimator.is_twin:
            estimator.condense_anchors(NETWORK_ANCHORS)
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
    frame.write_file(path, buffer.getvalue())


def read_predictions(folder, dataset, seed, effort, member):
    path = prediction_file(folder, dataset, seed, effort, member)
    if not path.exists() and member in _SAME:
        path = prediction_file(folder, dataset, seed, "thorough", member)
    with np.load(path) as file:
        return MemberPredictions(file["out_of_fold"], file["test"], float(file["seconds"]))


class StoredPredictions:
    """Predictions of encoded test rows, as an estimator."""

    def __init__(self, matrix, predicted):
        self.value_of_row = {row.tobytes(): y for row, y in zip(matrix, predicted, strict=True)}

    def predict(self, matrix):
        return np.array([self.value_of_row[row.tobytes()] for row in matrix])


class StoredMember(CrossFittedMember):
    """A member of which only the predictions of the test rows are known."""

    @property
    def is_twin(self):
        return self.label.endswith("twin")


class NoPreparation:
    """Features as they are, in the place of `FeaturePreparation`."""

    def transform(self, matrix):
        return matrix


@dataclass(eq=False, repr=False, kw_only=True)
class StoredBlend(AutoTwinRegressor):
    """An `AutoTwinRegressor` whose `fit` reads the predictions of its members.

    It predicts the test rows of the split only.
    """

    folder: str | Path = ""
    dataset: str = ""
    split: int = 0

    def fit_members(self, specs, rows, seed, start):
        """Read the members, as in `fit`."""
        _, (X_test, _) = split_table(self.dataset, self.split)
        matrix = validate_table(self, X_test, rows.schema, np.dtype(np.float64))[0]
        fits, members = CrossFit(rows, FitSettings(seed, self.memory_limit, self.n_jobs)), []
        for spec in fits.without_needless(specs):
            stored = read_predictions(self.folder, self.dataset, self.split, self.effort, spec.name)
            member = StoredMember(
                label=spec.label,
                estimator=StoredPredictions(matrix, stored.test),
                preparation=NoPreparation(),
                spec=spec,
                out_of_fold=stored.out_of_fold,
                fit_seconds=stored.seconds,
                predict_seconds=0.0,
            )
            members.append(member)
        self.skipped_ = {}
        return members


def blend_of_predictions(folder, effort, dataset, seed):
    """Return the blend of stored predictions of a split, and its seconds with those of members."""
    (X, y), _ = split_table(dataset, seed)
    model = StoredBlend(effort=effort, random_state=0, folder=folder, dataset=dataset, split=seed)
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    return model, seconds + model.leaderboard_["fit_seconds"].sum()


def has_same_folds(dataset, seed):
    """Return whether the folds of "balanced" are those of "thorough"."""
    (X, y), _ = split_table(dataset, seed)
    return len({prepare(effort, X, y).rows.n_folds for effort in ("balanced", "thorough")}) == 1


def run_others(trials, arguments):
    """Fit the members that are not networks; those that are equal for two efforts only once."""
    efforts = arguments.efforts
    both = {"balanced", "thorough"} <= set(efforts)

    def run(dataset, seed, effort, name):
        is_same = both and effort == "balanced" and name in _SAME and has_same_folds(dataset, seed)
        path = prediction_file(arguments.output, dataset, seed, effort, name)
        if not is_same and not path.exists():
            predictions = predict_other(dataset, seed, effort, name, arguments.n_jobs)
            if predictions is not None:
                write_predictions(arguments.output, dataset, seed, effort, name, predictions)
        return dataset, seed, effort, name

    n_rows = {dataset: len(split_table(dataset, 0)[0][1]) for dataset in arguments.datasets}
    trials = sorted(trials, key=lambda trial: -n_rows[trial[0]])  # those that take longest first
    names = [name for name in arguments.members or reversed(AUTO) if name not in NETWORKS]
    tasks = [
        delayed(run)(*trial, effort, name)
        for effort in efforts
        for trial in trials
        for name in names
    ]
    finished = Parallel(n_jobs=arguments.jobs, return_as="generator_unordered")(tasks)
    for number, done in enumerate(finished, 1):
        frame.print_progress(number, len(tasks), done)


def run_networks(trials, arguments):
    """Train the networks of all splits, those of one effort and kind together."""
    start = time.perf_counter()
    for effort in arguments.efforts:
        tasks = [delayed(build_networks)(*trial, effort) for trial in trials]
        built = Parallel(n_jobs=arguments.jobs)(tasks)
        print(f"built in {time.perf_counter() - start:.0f} s", flush=True)
        for name in arguments.members or NETWORKS:
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
    arguments = frame.parse_arguments(
        __doc__,
        kind="others",
        efforts=["thorough", "balanced"],
        datasets=list(KEYS),
        seeds=list(PAPER_SEEDS),
        members=str,
        jobs=1,
        n_jobs=1,
        output=frame.ROOT / "out" / "member_predictions",
    )
    arguments.output.mkdir(parents=True, exist_ok=True)
    trials = [(key, seed) for seed in arguments.seeds for key in arguments.datasets]
    {"others": run_others, "networks": run_networks}[arguments.kind](trials, arguments)


if __name__ == "__main__":
    main()
