"""The practitioner's guide in one call: should these data be twinned, and how?"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone

from twinned._validation import count_rows
from twinned.diagnostics.comparison import compare, ratio_interval
from twinned.diagnostics.cross_validation import Clock, Evidence, Report, check_values, gather
from twinned.diagnostics.curves import (
    anchor_curve,
    learning_curve,
    multiplier_check,
    neighbor_curve,
)
from twinned.diagnostics.finding import Finding
from twinned.diagnostics.uncertainty_checks import anchor_decomposition, loop_check, noise_estimate
from twinned.intervals.conformal import CrossCalibrated, calibrate_across
from twinned.pairing.splits import encode_groups

_NETWORK_SECONDS = 20.0  # about what five folds of small networks take, with compiling
_ESSENTIAL = 0.5  # the share of a budget that cross-validating the twin may take


@dataclass
class Diagnosis:
    """What was found, and what follows from it.

    Attributes
    ----------
    findings : dict of str to Finding
        By their keys.
    left_out : list of str
        What the time budget had no room for.
    recommended : estimator
        Not fitted.
    code : str
        Three lines of Python that make it.
    model : fitted estimator
        The recommended one, of all points.
    calibrated : CrossCalibrated
        Its intervals.
    evidence : Evidence
        Out-of-fold predictions.
    n_rows : int
        Of the table; the evidence is of fewer where there are too many for the budget.
    """

    findings: dict[str, Finding]
    left_out: list[str]
    recommended: Any
    code: str
    model: Any
    calibrated: CrossCalibrated
    evidence: Evidence
    n_rows: int
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """One sentence: does twinning help?"""
        return self.findings["comparison"].verdict

    def __str__(self) -> str:
        lines = [str(finding) for finding in self.findings.values()]
        if self.left_out:
            lines.append(f"Left out for lack of time: {', '.join(self.left_out)}.")
        return "\n".join(lines)


def diagnose(
    X: Any,
    y: Any,
    *,
    estimator: Any = None,
    budget: float | None = None,
    groups: Any = None,
    random_state: int = 0,
    progress: Report | None = None,
) -> Diagnosis:
    """Should these data be twinned, with how many anchors, and how far can it be trusted?

    Parameters
    ----------
    X : table or array of shape (n, n_features)
        All points whose values are known; twenty at least.
    y : array of shape (n,)
        Their values.
    estimator : a twin that is not fitted, default=None
        What to diagnose; None is `TwinRegressor()`, with `TwinNeuralRegressor` as its rival.
    budget : float, default=None
        Seconds. What is essential (five-fold cross-validation of the twin, its base and k-NN) is
        done in any case, of many rows with as many random ones as it has time for; each further
        check only if it is expected to fit. The model is fitted to all rows.
    groups : array of shape (n,), default=None
        Names of what rows belong to, where several belong together (measurements of one sample,
        flats of one house): they are left out together, and an answer must hold for new groups.
    random_state : int, default=0
        Draws the folds and seeds the models.
    progress : callable, default=None
        Is told what begins.

    Returns
    -------
    Diagnosis

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from twinned import TwinRegressor, diagnose
    >>> from twinned.datasets import make_wsb
    >>> X, y = make_wsb(60, random_state=0)
    >>> twin = TwinRegressor(DecisionTreeRegressor(max_depth=8, random_state=0))
    >>> found = diagnose(X, y, estimator=twin, budget=5)
    >>> found.findings["comparison"].numbers["answer"]
    'helps'
    """
    clock = Clock(budget)
    tell: Report = progress or (lambda what: None)
    if groups is not None:
        groups = encode_groups(groups, count_rows(X))
    every = X, check_values(y, count_rows(X))
    evidence = gather(
        *every,
        estimator,
        groups=groups,
        random_state=random_state,
        tell=tell,
        seconds=None if budget is None else _ESSENTIAL * budget,
    )
    X, y = evidence.X, evidence.y
    left_out: list[str] = []

    def wanted(name: str, fits: float, seconds: float = 0.0) -> bool:
        # the model of all points, and its intervals, must have their time
        seconds += _last_seconds(evidence, findings)
        if clock.has(fits * evidence.fit_seconds + seconds):
            tell(name)
            return True
        left_out.append(name)
        return False

    findings: list[Finding] = []
    notes: list[str] = []
    if evidence.places is not None:
        notes.append(
            f"For lack of time all was judged by {len(y):,} random rows of {len(every[1]):,}. The "
            "model is of all, so it will err less than is said here, and its intervals are wide."
        )

    def ask(checks: list[tuple[str, float, Callable[..., Finding]]]) -> None:
        for name, fits, check in checks:
            curve = check in (anchor_curve, neighbor_curve)
            if not wanted(name, fits, evidence.estimate_seconds if curve else 0.0):
                continue
            try:
                findings.append(check(X, y, evidence=evidence))
            except ValueError as error:
                notes.append(f"{name}: {error}")

    networks: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ask(
            [
                ("anchor curve", 0.0, anchor_curve),
                ("neighbor curve", 0.0, neighbor_curve),
                ("loop check", 0.5, loop_check),
                ("noise estimate", 0.0, noise_estimate),
                ("multiplier check", 1.5, multiplier_check),
            ]
        )
        if estimator is None and _takes_networks(evidence):
            networks = _add_networks(evidence, random_state, wanted, tell)
        elif estimator is None:
            notes.append("Networks were not tried: they take no missing values.")
        ask(
            [
                ("learning curve", 2.0, learning_curve),
                ("variance of anchors", 4.0, anchor_decomposition),
            ]
        )
    findings.insert(0, compare(X, y, evidence=evidence))
    by_key = {finding.key: finding for finding in findings}
    recommended, models, said, code = _recommend(
        evidence, by_key, networks, random_state, default=estimator is None
    )
    tell("fitting the recommended twin to all points")
    model = clone(recommended).fit(*every)
    calibrated = calibrate_across(models, model, X, y, evidence.folds, said=said, learned=every)
    return Diagnosis(
        by_key,
        left_out,
        recommended,
        code,
        model,
        calibrated,
        evidence,
        n_rows=len(every[1]),
        seconds=clock.spent,
        notes=notes,
    )


def _last_seconds(evidence: Evidence, findings: list[Finding]) -> float:
    """About how long the model of all points and its intervals take."""
    asking = 0.0
    for finding in findings:
        if finding.key == "neighbors" and finding.numbers["best"] is not None:
            # the twins of the folds are asked again, with their nearest anchors
            asking = evidence.pair_seconds * finding.numbers["best"] * len(evidence.y)
    return 1.5 * max(evidence.fit_seconds, evidence.last_seconds) + asking + 2.0


def _takes_networks(evidence: Evidence) -> bool:
    """Networks take no missing values."""
    return bool(np.isfinite(evidence.encoder.features).all())


def _add_networks(
    evidence: Evidence, random_state: int, wanted: Callable[..., bool], tell: Report
) -> list[Any]:
    """Twin networks of a small effort, and plain ones beside them; the fitted twins."""
    from twinned.neural import NeuralRegressor, TwinNeuralRegressor

    options: dict[str, Any] = {"effort": "fast", "random_state": random_state}
    if not wanted("twin network", 0.0, _NETWORK_SECONDS):
        return []
    start = time.monotonic()
    twins = evidence.add("twin network", lambda n: TwinNeuralRegressor(**options), tell)
    if wanted("plain network", 0.0, time.monotonic() - start):
        evidence.add("network", lambda n: NeuralRegressor(**options), tell)
    return twins


def _recommend(
    evidence: Evidence,
    findings: dict[str, Finding],
    networks: list[Any],
    random_state: int,
    *,
    default: bool,
) -> tuple[Any, list[Any], Any, str]:
    """The better twin, with nearest anchors where they are better; its models of the folds.

    Also what these said of the points they left out, where they have been asked.
    """
    told, y, groups = evidence.told, evidence.y, evidence.groups
    if networks and ratio_interval(told["twin network"], told["twin"], y, groups)[2] < 1:
        from twinned.neural import TwinNeuralRegressor

        twin = TwinNeuralRegressor(effort="fast", random_state=random_state)
        code = (
            "from twinned import TwinNeuralRegressor\n"
            f'twin = TwinNeuralRegressor(effort="fast", random_state={random_state})\n'
            "twin.fit(X, y)"
        )
        return twin, networks, None, code
    twin, models = evidence.twin, evidence.twins
    said: Any = evidence.left_out()
    nearest = findings["neighbors"].numbers["best"] if "neighbors" in findings else None
    names, options = "TwinRegressor", f"random_state={random_state}"
    if nearest is not None:
        from twinned.pairing.anchors import NearestAnchors

        metric = findings["neighbors"].numbers["metric"]
        anchors = NearestAnchors(nearest, metric=metric)
        twin = clone(twin).set_params(anchors=anchors)
        models, said = [copy.copy(model) for model in models], None
        for model in models:
            fewer = min(nearest, len(model.anchors_y_))
            model.set_params(anchors=NearestAnchors(fewer, metric=metric))
        names, options = "NearestAnchors, TwinRegressor", f"anchors={anchors!r}, {options}"
    if not default:
        return twin, models, said, _written_out(twin)
    code = f"from twinned import {names}\ntwin = TwinRegressor({options})\ntwin.fit(X, y)"
    return twin, models, said, code


def _written_out(twin: Any) -> str:
    """Three lines of Python: imports, the twin with all that was set, and its fit."""
    parts = {type(twin)} | {
        type(value) for value in twin.get_params().values() if hasattr(value, "get_params")
    }
    homes: dict[str, list[str]] = {}
    for part in sorted(parts, key=lambda part: part.__name__):
        # scikit-learn's classes are in public packages, their modules are private
        home = part.__module__.split("._")[0]
        home = "twinned" if home.startswith("twinned") else home
        homes.setdefault(home, []).append(part.__name__)
    imports = "; ".join(f"from {home} import {', '.join(names)}" for home, names in homes.items())
    made = " ".join(twin.__repr__(N_CHAR_MAX=10**6).split())
    return f"{imports}\ntwin = {made}\ntwin.fit(X, y)"
