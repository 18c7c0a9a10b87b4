"""`solve`: inputs whose predicted target is as wanted."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from twinned.exceptions import UnreachedTargetWarning
from twinned.fitted.applicability import LABELS
from twinned.inverse.forward import ForwardModel
from twinned.inverse.goals import Goals
from twinned.inverse.search import Candidates, Search, select_different
from twinned.inverse.space import LinearConstraints, SearchSpace, find_columns, parse_bounds
from twinned.rows.schema import NUMERIC, Floats, Indices, is_table, known_medians
from twinned.rows.validation import check_integer

_N_STARTS = 64  # rows that are moved by the approximation
_N_CANDIDATES = 24  # rows that are moved by the model
_APPROXIMATE_STEPS, _STEPS = 40, 14


def solve(
    model: Any,
    target: Any,
    *,
    near: Any = None,
    fixed: Sequence[str] | Mapping[str, Any] | None = None,
    bounds: Mapping[str, Sequence[float | None]] | None = None,
    constraints: Sequence[str] | str | None = None,
    n: int = 5,
    confidence: float | None = None,
    batch: str | None = None,
    random_state: Any = None,
) -> pd.DataFrame:
    """Find inputs whose predicted target is as wanted."""
    forward = ForwardModel.of(model, batch)
    n = check_integer("n", n)
    if confidence is not None and not forward.has_intervals:
        raise ValueError("confidence needs a calibrated model; see twinned.cross_conformal.")
    goals = Goals.parse(target, forward.target_names, forward.known_y)
    origin = None if near is None else _encode_row(forward, near, "near")
    values = _fixed_values(forward, fixed, origin)
    space = _make_space(forward, values, bounds, constraints)

    def predict(rows: Floats) -> Floats:
        intervals = None if confidence is None else forward.predict_interval(rows, confidence)
        return goals.take(forward.predict(rows), intervals)

    def approximate(rows: Floats) -> Floats:
        return goals.take(forward.approximation.predict(rows))

    search = Search(space, goals, approximate, origin)
    starts = _starts(forward, search, values, check_random_state(random_state))
    found = _search(forward, search, predict, starts)
    return _tabulate(forward, search, found, n, confidence)


# --- arguments ----------------------------------------------------------------------------------


def _encode_row(forward: ForwardModel, near: Any, argument: str) -> Floats:
    """(feature,): a row that is given as a mapping, a series, a table or a sequence."""
    if isinstance(near, Mapping | pd.Series):
        find_columns(forward.names, list(near.keys()), argument)
        if absent := [name for name in forward.names if name not in near]:
            raise ValueError(f"{argument} has no value of {absent[0]!r}.")
        near = pd.DataFrame({name: [near[name]] for name in forward.names})
    elif not is_table(near):
        near = np.asarray(near, dtype=object).reshape(1, -1)
    rows = forward.encode(near)
    if len(rows) != 1:
        raise ValueError(f"{argument} must be one row, not {len(rows)}.")
    return rows[0]


def _fixed_values(
    forward: ForwardModel, fixed: Sequence[str] | Mapping[str, Any] | None, origin: Floats | None
) -> dict[int, float | None]:
    """The value of each fixed column by its position; None is that of each known row."""
    fixed = [fixed] if isinstance(fixed, str) else fixed or []
    columns = find_columns(forward.names, list(fixed), "fixed")
    values: dict[int, float | None] = dict.fromkeys(columns)
    if isinstance(fixed, Mapping):
        row = forward.decode(forward.known[0]) | dict(fixed)
        origin = _encode_row(forward, row, "fixed")
    if origin is not None:
        values = {j: float(origin[j]) for j in columns}
        for j in columns:
            if np.isnan(origin[j]):
                raise ValueError(f"The fixed column {forward.names[j]!r} has no value.")
    return values


def _make_space(
    forward: ForwardModel,
    values: Mapping[int, float | None],
    bounds: Mapping[str, Sequence[float | None]] | None,
    constraints: Sequence[str] | str | None,
) -> SearchSpace:
    """The columns that may change, their bounds and the constraints."""
    names, schema, known = forward.names, forward.schema, forward.known
    low, high = parse_bounds(bounds, names, schema, known)
    texts = [constraints] if isinstance(constraints, str) else list(constraints or ())
    linear = LinearConstraints.parse(texts, names)
    for j in schema.categorical:
        low[j] = high[j] = 0.0
        if linear.coefficients[:, j].any():
            raise ValueError(f"constraints: the column {names[j]!r} is not numeric.")
    is_free = np.isin(np.arange(len(names)), list(values), invert=True) & (high > low)
    is_whole = np.all(np.isnan(known) | (known == np.round(known)), axis=0)
    return SearchSpace(names, low, high, is_free, is_whole, linear)


# --- search -------------------------------------------------------------------------------------


def _starts(
    forward: ForwardModel,
    search: Search,
    values: Mapping[int, float | None],
    rng: np.random.RandomState,
) -> Candidates:
    """Different known rows near the goal or the given row, and that row with one free column."""
    space, origin, known = search.space, search.near, forward.known
    pool = np.where(np.isnan(known) & space.is_free, known_medians(known), known)
    for j, value in values.items():
        pool[:, j] = pool[:, j] if value is None else value
    usable = ~np.isnan(pool[:, list(values)]).any(axis=1)
    loss = search.goals.loss(search.goals.take(forward.known_y))
    order = np.lexsort((rng.permutation(len(pool)), loss))
    order = order[usable[order]]
    chosen = select_different(
        pool / space.width, order[: max(2 * _N_STARTS, len(order) // 3)], _N_STARTS, 0.5
    )
    rows, moving = [pool[chosen]], [np.ones((len(chosen), len(space.upper)), dtype=bool)]
    if origin is not None:
        distance = forward.distances(pool, origin[None])[:, 0]
        nearest = np.argsort(np.where(usable, distance, np.inf))[:_N_STARTS]
        single = np.eye(len(space.upper), dtype=bool)[: len(space.free)]
        copies = np.repeat(origin[None], 1 + len(single), axis=0)
        rows += [pool[nearest], copies, _other_categories(forward, origin, values)]
        moving += [np.ones((len(nearest), len(space.upper)), dtype=bool)]
        moving += [np.concatenate([np.ones((1, len(space.upper)), dtype=bool), single])]
        moving += [np.ones((len(rows[-1]), len(space.upper)), dtype=bool)]
    given, may_move = np.concatenate(rows), np.concatenate(moving)
    for j, value in values.items():
        given[:, j] = given[:, j] if value is None else value
    settled, is_possible = space.settle(given)
    if not is_possible.any():
        raise ValueError(
            "The constraints contradict each other, or the bounds and fixed columns: no row "
            "satisfies them all."
        )
    settled, may_move = settled[is_possible], may_move[is_possible]
    return Candidates(settled, may_move, search.approximate(settled))


def _other_categories(
    forward: ForwardModel, origin: Floats, values: Mapping[int, float | None]
) -> Floats:
    """The given row with each other category of a column that is not fixed."""
    rows = [origin[:0].reshape(0, len(origin))]
    for j in forward.schema.categorical:
        if j not in values:
            codes = np.unique(forward.known[:, j][~np.isnan(forward.known[:, j])])
            copies = np.repeat(origin[None], len(codes), axis=0)
            copies[:, j] = codes
            rows.append(copies)
    return np.concatenate(rows)


def _search(forward: ForwardModel, search: Search, predict: Any, starts: Candidates) -> Candidates:
    """Rows that reach the goals by the model, or are near them: first by its approximation."""
    space = search.space
    moved = search.descend(starts, search.approximate, _APPROXIMATE_STEPS)
    settled, is_possible = space.settle(moved.rows)
    moved = Candidates(settled, moved.moving, search.approximate(settled)).take(is_possible)
    order = _order(forward, search, moved, _preference(forward, search, moved.rows))
    chosen = select_different(moved.rows / space.width, order, _N_CANDIDATES, 0.1)
    chosen_rows = moved.rows[chosen]
    moving = moved.moving[chosen] & ~space.whole
    return search.descend(Candidates(chosen_rows, moving, predict(chosen_rows)), predict, _STEPS)


def _preference(forward: ForwardModel, search: Search, rows: Floats) -> Floats:
    """(row,): the distance from the given row, or else the expected error, which is preferred small."""
    if search.near is not None:
        return forward.distances(rows, search.near[None])[:, 0]
    return forward.expected_error(rows)


def _order(forward: ForwardModel, search: Search, found: Candidates, preference: Floats) -> Indices:
    """The rows that reach the goals first, those inside of the known rows before others."""
    goals = search.goals
    miss, is_outside = goals.miss(found.ends), forward.applicability(found.rows) == 2
    if any(goal.direction for goal in goals.goals):
        preference = goals.loss(found.ends)
    reached = miss <= goals.tolerance
    preference = np.where(reached, preference, goals.loss(found.ends))
    return np.lexsort((preference, is_outside, miss > 1e-5, ~reached))


# --- result -------------------------------------------------------------------------------------


def _tabulate(
    forward: ForwardModel, search: Search, found: Candidates, n: int, confidence: float | None
) -> pd.DataFrame:
    """The table of the solutions that are chosen."""
    goals, space, origin = search.goals, search.space, search.near
    spread = forward.predict_std(found.rows)[:, goals.outputs] / goals.unit
    preference = spread.max(axis=1) if origin is None else _preference(forward, search, found.rows)
    order = _order(forward, search, found, preference)
    reached = goals.miss(found.ends) <= goals.tolerance
    if reached.any():
        order = order[reached[order]]
    else:
        closest = goals.describe(found.ends[order[0]])
        warnings.warn(
            f"No row was found that reaches the target; the closest ones are returned ({closest}).",
            UnreachedTargetWarning,
            stacklevel=3,
        )
    chosen = select_different(found.rows / space.width, order, n, 0.2)
    rows, reached = found.rows[chosen], reached[chosen]
    distances = forward.distances(rows, forward.known)
    anchors = np.argmin(distances, axis=1)
    base = forward.known[anchors] if origin is None else np.repeat(origin[None], len(rows), axis=0)
    table, before = (
        forward.decoded_table(rows, space.is_whole),
        forward.decoded_table(base, space.is_whole),
    )
    predicted = forward.predict(rows)
    level = 0.9 if confidence is None else confidence
    intervals = forward.predict_interval(rows, level) if forward.has_intervals else None
    columns = {name: table[name] for name in forward.names}
    for j, name in enumerate(forward.names):
        columns[f"change of {name}"] = _changes(before[name], table[name], forward.schema.kinds[j])
    columns["anchor"] = [forward.labels[i] for i in anchors]
    several = len(forward.target_names) > 1
    for output, target in enumerate(forward.target_names):
        suffix = f"_{target}" if several else ""
        columns[f"predicted{suffix}"] = predicted[:, output]
        if intervals is not None:
            columns[f"lower{suffix}"], columns[f"upper{suffix}"] = intervals[:, output].T
            for goal in goals.goals:
                if goal.output == output and not goal.direction and not goal.is_number:
                    columns[f"probability{suffix}"] = forward.probability(rows, goal)
    columns["applicable"] = np.array(LABELS, dtype=object)[forward.applicability(rows)]
    from_base = (
        distances.min(axis=1) if origin is None else forward.distances(rows, origin[None])[:, 0]
    )
    columns["distance"], columns["reached"] = from_base, reached
    return pd.DataFrame(columns)


def _changes(before: pd.Series, after: pd.Series, kind: str) -> Any:
    """(row,): differences of numbers, and texts of changed categories."""
    if kind == NUMERIC:
        return after.to_numpy(dtype=float) - before.to_numpy(dtype=float)
    pairs = zip(before, after, strict=True)
    return ["" if old == new else f"{old} → {new}" for old, new in pairs]
