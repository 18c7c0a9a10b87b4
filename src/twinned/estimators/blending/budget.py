"""Expected seconds of the fits of members, and their order within a time budget.

Members are fitted one after another: ridge regression, which takes next to no time and is often
among the best on tables of few rows, and then the others in the order of expected seconds per gain,
each with the largest effort that takes at most half of the remaining time; then those that take
more; and then members of less effort again with more, of which the fit of the lower error is kept.
The remaining time has a reserve for the blend and its intervals. Expected times are those of a
table, corrected by the time of the members that have been fitted; where a member is fitted in each
fold, the first folds correct it once more.

Of wide tables, members of the least effort, which have few features, come before those of all
features, which take longer and are often worse.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from joblib import effective_n_jobs

from twinned.estimators.blending.members import (
    SCREENED_FEATURES,
    SIZES,
    CrossFittedMember,
    MemberSpec,
    resolve_members,
)
from twinned.fitted.calibration import MAX_SPLIT_FEATURES
from twinned.models.base_estimator import MAX_FEATURES
from twinned.models.base_estimator import SIZES as TREE_SIZES
from twinned.models.learned_metric import MAX_ROWS as METRIC_ROWS

if TYPE_CHECKING:
    from twinned.estimators.blending.cross_fit import CrossFit

# Expected gain: roughly the weight of a member in blends of the paper's data sets.
_GAIN = {
    "gp_matern": 3.0,
    "neural_twin": 3.0,
    "extra_trees": 2.0,
    "tree_twin": 2.0,
    "neural": 1.5,
    "gp_rbf": 1.5,
    "gp_tanimoto": 3.0,
    "boosting": 1.0,
    "ridge": 0.5,
}
_FIRST_SHARE = 0.5  # of the remaining time that a member may take before the others are tried
_SAFETY = 1.15  # of expected times
_NEURAL_FEATURES = 60  # beyond, networks have no periodic embedding, and a step takes no longer
# Evaluations of the likelihood in the search of `models.gaussian_process`: on few rows, then on
# more; with fewer rows per feature, the search in a fold does not start from that of all rows.
_COARSE_STEPS, _FINE_STEPS, _FOLD_STEPS, _WIDE_STEPS = 70, 10, 12, 25
_COARSE_ROWS, _ROWS_PER_FEATURE, _NARROW_FEATURES = 250, 15, 20
_ROWS_OF_THREADS = 1000
# Of the time budget: fewer rows are fitted where boosting and the calibration take longer.
_SUBSET_SHARE, _LEAST_SUBSET = 0.5, 1000


class CostModel(NamedTuple):
    """Expected seconds of the fits of a member on a recent machine."""

    n_rows: int
    n_columns: int
    n_folds: int
    n_jobs: int

    def seconds(self, spec: MemberSpec) -> float:
        """Expected seconds of all fits of a member, with `n_jobs`."""
        # threads that fit few rows wait for each other
        n_parallel = self.n_jobs if self.n_rows > _ROWS_OF_THREADS else 1
        name, rounds = spec.plain_name, -(-(self.n_folds + 1) // n_parallel)
        if spec.has_threads:
            return self._seconds_of_networks(spec)
        seconds = _FIT_SECONDS.get(name, _seconds_of_unknown)(self.n_rows, self.n_columns, spec)
        if spec.one_fit and not spec.is_built_in:
            return seconds * (1 + self.n_folds / 2) + 0.05
        if name != spec.name:  # the transformations
            seconds += 4e-6 * self.n_rows * self.n_columns * self.n_folds / rounds
        if not (spec.one_fit and name.startswith("gp_")):
            return seconds * rounds + 0.05
        fold_seconds = seconds
        if self.n_rows * (1 - 1 / self.n_folds) >= _ROWS_PER_FEATURE * self.n_columns:
            # the search in a fold starts from that of all rows
            n_rows = min(self.n_rows, SIZES[spec.effort].gp_rows // 2)
            fold_seconds = _FOLD_STEPS * _likelihood_seconds(n_rows, self.n_columns)
        return seconds + rounds * (fold_seconds + 0.03)

    def _seconds_of_networks(self, spec: MemberSpec) -> float:
        from twinned.models.neural.parameters import EFFORTS as NEURAL_EFFORTS

        sizes = NEURAL_EFFORTS[spec.effort]
        n_folds = min(self.n_folds, sizes.blend_folds)
        # as where there is little noise
        n_steps = (n_folds * sizes.blend_settings + sizes.blend_members) * sizes.max_steps
        per_step = (1e-5 if spec.name == "neural_twin" else 4e-6) * sizes.batch_size
        per_step *= 1 + min(self.n_columns, _NEURAL_FEATURES) / 30
        return 10.0 + n_steps * per_step / self.n_jobs


# --- expected seconds of one fit to n rows of p columns -------------------------------------------


def _seconds_of_trees(n: int, p: int, spec: MemberSpec) -> float:
    return SIZES[spec.effort].trees * (2e-8 * n * np.log2(n + 1) * _n_used(p, spec) + 1.2e-3)


def _seconds_of_boosting(n: int, p: int, spec: MemberSpec) -> float:
    sizes, p = SIZES[spec.effort], _n_used(p, spec)
    per_tree = (4e-8 * n * p + 1e-4 * p + 2e-3) * (0.25 + 0.75 * sizes.leaves(n) / 31)
    return sizes.boosting_iterations * per_tree


def _seconds_of_process(n: int, p: int, spec: MemberSpec) -> float:
    selecting = 6e-7 * n * np.log2(n + 1) * p * spec.screened
    return gp_seconds(min(n, SIZES[spec.effort].gp_rows // 2), _n_used(p, spec)) + selecting


def _seconds_of_tree_twin(n: int, p: int, spec: MemberSpec) -> float:
    sizes, p = TREE_SIZES[spec.effort], min(p, MAX_FEATURES)
    n_pairs = min(sizes.n_pairs(n, p), n * n / 2)
    return sizes.n_trees(n) * (6e-9 * n_pairs * 3 * p + 2e-3) + 2e-6 * n * n


def _seconds_of_unknown(n: int, p: int, spec: MemberSpec) -> float:
    return 1e-6 * n * p + 0.5


_FIT_SECONDS: dict[str, Callable[[int, int, MemberSpec], float]] = {
    "ridge": lambda n, p, spec: 8e-9 * n * p**2 + 0.02,
    "gp_matern": _seconds_of_process,
    "gp_rbf": _seconds_of_process,
    "gp_tanimoto": _seconds_of_process,
    "extra_trees": _seconds_of_trees,
    "boosting": _seconds_of_boosting,
    "tree_twin": _seconds_of_tree_twin,
}


def _n_used(n_columns: int, spec: MemberSpec) -> int:
    """The number of columns that take time: of a screened member the others take some, too."""
    return SCREENED_FEATURES + n_columns // 4 if spec.screened else n_columns


def gp_seconds(n_rows: int, n_columns: int) -> float:
    """Expected seconds of the search for the hyperparameters of a Gaussian process."""
    if n_columns > _NARROW_FEATURES and n_rows < _ROWS_PER_FEATURE * n_columns:
        return _WIDE_STEPS * _likelihood_seconds(n_rows, n_columns)
    seconds = _COARSE_STEPS * _likelihood_seconds(min(n_rows, _COARSE_ROWS), n_columns)
    if n_rows > _COARSE_ROWS:
        seconds += _FINE_STEPS * _likelihood_seconds(n_rows, n_columns)
    return seconds


def _likelihood_seconds(n_rows: int, n_columns: int) -> float:
    """Expected seconds of a likelihood and its gradient."""
    return 2.1e-11 * n_rows**3 + (1e-7 + 1e-10 * n_columns) * n_rows**2


def finishing_seconds(n_rows: int, n_columns: int, n_folds: int) -> float:
    """Expected seconds of the blend, the calibration of intervals and the learned metric."""
    features = min(n_columns + 7, 2 * MAX_SPLIT_FEATURES)
    calibrating = (1 + n_folds) * (0.1 + 6e-7 * n_rows * np.log2(n_rows + 1) * features)
    return 0.5 + calibrating + gp_seconds(min(n_rows, METRIC_ROWS), n_columns)


def affordable_rows(n_rows: int, n_columns: int, seconds: float, n_jobs: int | None) -> int:
    """How many of `n_rows` rows can be fitted and calibrated within `seconds`, at least 1,000."""
    least = min(n_rows, _LEAST_SUBSET)
    (spec,) = resolve_members(["boosting:fast"], "fast")
    size = n_rows
    while size > least:
        cost = CostModel(size, n_columns, 5, effective_n_jobs(n_jobs))
        if finishing_seconds(size, n_columns, 5) + cost.seconds(spec) <= _SUBSET_SHARE * seconds:
            break
        size = max(least, int(0.8 * size))
    return size


# --- remaining time -------------------------------------------------------------------------------


class Clock:
    """Remaining time, and expected times corrected by those of the members so far."""

    def __init__(self, deadline: float, costs: CostModel) -> None:
        self._deadline, self._costs = deadline, costs
        self._finishing = finishing_seconds(costs.n_rows, costs.n_columns, costs.n_folds)
        self._expected, self._actual = 1.0, 1.0

    @property
    def remaining(self) -> float:
        """Seconds until the blend must be computed."""
        return self._deadline - time.perf_counter() - self.reserve

    @property
    def reserve(self) -> float:
        """Seconds for the blend and its intervals, more on a slow or busy machine."""
        return self._finishing * max(0.7, self._slowness)

    def expected(self, spec: MemberSpec) -> float:
        """Expected seconds of all fits of a member."""
        return self._costs.seconds(spec) * self._slowness

    @property
    def _slowness(self) -> float:
        return self._actual / self._expected

    def describe_lack(self, spec: MemberSpec) -> str:
        """The reason why a member is not fitted."""
        return (
            f"expected to take {max(self.expected(spec), 0.1):.1f} s, and "
            f"{max(self.remaining, 0):.1f} s remain besides {self.reserve:.1f} s for the blend and "
            "its intervals"
        )

    def calibrate(self, spec: MemberSpec, seconds: float) -> None:
        """Correct the expected times by the seconds that a member took."""
        self._expected += self._costs.seconds(spec)
        self._actual += seconds


def fit_within(fits: CrossFit, specs: list[MemberSpec], deadline: float) -> list[CrossFittedMember]:
    """Fit members one after another; the blend ends at this time of `time.perf_counter`."""
    clock = Clock(deadline, fits.cost_model(effective_n_jobs(fits.settings.n_jobs)))
    specs = fits.without_needless(specs)
    seconds_per_gain = {s.name: clock.expected(s) / _GAIN.get(s.plain_name, 1.0) for s in specs}
    specs = sorted(specs, key=lambda s: (s.name != "ridge", seconds_per_gain[s.name]))
    efforts = {spec.name: spec.efforts(fits.n_features) for spec in specs}
    # the fits that may still be tried, in this order
    pending = [
        spec
        for of_member in efforts.values()
        for spec in sorted(of_member, key=lambda s: not s.screened)
    ]
    members: dict[str, CrossFittedMember] = {}
    while (spec := _next_fit(pending, members, clock)) is not None:
        of_member = efforts[spec.name]
        done = of_member
        member = fits.fit_one(spec, clock, required=not members)
        if member is not None:
            members[spec.name] = min(member, members.get(spec.name, member), key=fits.rmse)
            done = of_member[of_member.index(spec) :]  # not again with less effort
        elif not fits.skipped[spec.label].startswith("failed"):  # its first fold took too long
            done = of_member[: of_member.index(spec) + 1]
        pending = [other for other in pending if other not in done]
    for name, of_member in efforts.items():
        labels = {spec.label for spec in of_member}
        if name in members:
            fits.skipped = {k: reason for k, reason in fits.skipped.items() if k not in labels}
        elif not labels & fits.skipped.keys():
            fits.skipped[of_member[0].label] = clock.describe_lack(of_member[-1])
    return list(members.values())


def _next_fit(
    pending: list[MemberSpec], members: dict[str, CrossFittedMember], clock: Clock
) -> MemberSpec | None:
    """The next fit within the remaining time, or any where no member is fitted.

    First come those that leave time for others, then other members, then fits of more effort.
    """
    remaining = clock.remaining / _SAFETY
    affordable = [spec for spec in pending if clock.expected(spec) < remaining]
    if affordable:

        def priority(spec: MemberSpec) -> int:
            takes_long = clock.expected(spec) >= _FIRST_SHARE * remaining
            return 2 if spec.name in members else int(takes_long)

        return min(affordable, key=priority)
    if members or not pending:
        return None
    return min(pending, key=lambda spec: (spec.name != "ridge", clock.expected(spec)))
