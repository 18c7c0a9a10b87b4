"""`solve`: inputs whose predicted target is as wanted."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from twinned.exceptions import TableWarning, UnreachedTargetWarning
from twinned.fitted.applicability import LABELS, OUTSIDE
from twinned.rows.schema import NUMERIC, Floats, is_table, known_medians
from twinned.rows.validation import check_integer
from twinned.search.forward import ForwardModel
from twinned.search.optimization import (
    Goals,
    Search,
    SearchSpace,
    find_columns,
    parse_constraints,
    parse_range,
    select_different,
)

_N_STARTS = 64  # different known rows that are moved by the approximation of the model
_APPROXIMATE_STEPS, _STEPS = 40, 12
_LEAST_CANDIDATES = 16  # rows that are moved by the model
_GAP = 0.2  # by which solutions differ in some column, in its range, where there are enough
_EXACT = 1e-5  # a miss, in standard deviations of y, that is as good as none
_MAX_NAMED = 20  # categories in a message
_CONFIDENCE = 0.9  # of the intervals in the table, unless another is given


def solve(
    model: object,
    target: object,
    *,
    near: object = None,
    fixed: Sequence[str] | Mapping[str, object] | None = None,
    bounds: Mapping[str, Sequence[float | None] | str] | None = None,
    constraints: Sequence[str] | str | None = None,
    n: int = 5,
    confidence: float | None = None,
    batch: str | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> pd.DataFrame:
    """Find inputs whose predicted target is as wanted.

    The search starts at known rows and changes them until the prediction is as wanted. Solutions
    are different from each other; where there are none, the closest rows are returned, the closest
    first and with an `UnreachedTargetWarning`.

    Parameters
    ----------
    model : a fitted twin, or a function
        Any twin or blend, also one of several targets or of a transformed target, or the result of
        `conformal` or `cross_conformal` for one. Or a function of a DataFrame, which returns its
        values, (n,) or (n, n_outputs): its columns are those of `bounds`, which must be finite,
        and its known rows are 256 that fill them. It is evaluated at thousands of rows, in tables
        of many.
    target : float, (low, high), str or dict
        The wanted value or range: a number, `(low, high)` or `"40..60"`, `">= 60"`, `"<= 5"`,
        `"max"` or `"min"`. For a model of several targets, a dict with one of these for some or all
        of them, by name; the others are not restricted. A number is reached if the prediction
        differs by at most 1 % of the standard deviation of the known values. Numbers of over a
        million times the known values are refused.
    near : dict, Series, or table or array of one row, default=None
        The row that is to be changed: solutions change it little. Some change one column only. For
        `"max"` and `"min"`, it is only one of the rows from which the search starts. Without it,
        solutions are those that the model predicts with the smallest expected error.
    fixed : sequence of str or dict, default=None
        Columns that keep the value of `near`, or that of the known row from which a solution
        starts; or a dict with the values of columns, of which None is the former.
    bounds : dict, default=None
        `(low, high)` of numeric columns by name, or a text such as `"1..8"` or `"<= 8"`, where an
        end that is None or absent is not changed; equal ends are the value. By default the ranges
        of the known rows.
    constraints : str or sequence of str, default=None
        Linear equations and inequalities of numeric columns, such as `"a + b + c = 100"` or
        `"2 a - b <= 5"`.
    n : int, default=5
        Number of solutions.
    confidence : float, default=None
        With it, the prediction interval of this confidence must be within the wanted range, not
        only the prediction: its lower end must be at least 60 for `">= 60"`, and is maximized by
        `"max"`. If a number is wanted, it only sets the interval of the result. The model must be
        calibrated, as an `AutoTwinRegressor` is.
    batch : str, default=None
        Batch in which rows are to be measured, for a model with batches.
    random_state : int, RandomState or None, default=None
        Breaks ties between known rows as starts.

    Returns
    -------
    DataFrame
        With a row for each solution, the best first, and the columns of the features; the change of
        each from `near`, or else from the nearest known row, as `change of …`; `anchor`, the label
        or number of the nearest known row; `predicted`; of a calibrated model `lower` and `upper`,
        the ends of the interval of `confidence` or 0.9, of which the worse one of a maximum or
        minimum is extended, as the row is chosen by its prediction, and `probability`, that a
        measurement is within the wanted range; `applicable`, as in `applicability`; `distance` of
        the changes in the learned metric; and `reached`, whether the target is reached. With
        several targets, names such as `predicted` end with `_` and the name of the target. A result
        that is called like an input has `_` after its name.

    Numeric columns of which all known values are whole stay whole, and categories are those of
    known rows or of `near` with one category changed.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from twinned import TwinRegressor, solve
    >>> X = pd.DataFrame({"heat": [1.5, 2.0, 4.0, 5.5], "time": [2.0, 1.2, 3.0, 1.0]})
    >>> twin = TwinRegressor(Ridge(1e-6)).fit(X, 2 * X["heat"] + X["time"])
    >>> solve(twin, 9.0, near={"heat": 2.0, "time": 2.0}, fixed=["time"], n=1)["heat"].round(3)
    0    3.5
    Name: heat, dtype: float64
    """
    forward = ForwardModel(model, batch, bounds or {})
    n, rng = check_integer("n", n), check_random_state(random_state)
    if confidence is not None and not forward.has_intervals:
        raise ValueError("confidence needs a calibrated model; see twinned.cross_conformal.")
    goals = Goals(target, forward.target_names, forward.known_outputs)
    origin = None if near is None else _encode_row(forward, near, "near")
    values = _fixed_values(forward, fixed, origin)
    space = _make_space(forward, values, bounds or {}, constraints or [])
    origin = None if origin is None else _fill(origin, forward, space)

    def predict(rows: Floats) -> Floats:
        predicted = forward.predict(rows)[:, goals.outputs]
        if confidence is None:
            return predicted
        ends = forward.predict_interval(rows, confidence)[:, goals.outputs]
        return np.where(goals.is_number[:, None], predicted, ends)

    search = Search(space, goals, lambda rows: forward.approximate(rows)[:, goals.outputs])
    rows, moving = _starts(forward, search, origin, values, rng)
    pulls = [None] if origin is None or goals.direction.any() else [origin, None]
    for pull in pulls:  # the target may only be reached far from the given row
        search = replace(search, near=pull)
        rows, ends = _move(forward, search, origin, rows, moving, predict, n)
        is_reached = goals.is_reached(ends)
        if is_reached.any():
            break
        moving = np.ones((len(rows), moving.shape[1]), dtype=bool)
    order = _solutions(_order(forward, goals, origin, rows, ends), is_reached)
    chosen = select_different(rows / space.width, order, n, _GAP)
    level = confidence or _CONFIDENCE
    intervals = forward.predict_interval(rows[chosen], level) if forward.has_intervals else None
    for output, direction in zip(goals.outputs, goals.direction, strict=True):
        if intervals is not None and direction:
            ends = intervals[:, output]
            intervals[:, output] = forward.extend_by_selection(ends, rows, output, direction)
    return _tabulate(forward, space, goals, origin, rows[chosen], is_reached[chosen], intervals)


# --- arguments ------------------------------------------------------------------------------------


def _encode_row(forward, row, argument):
    """(feature,): a row that is given as a mapping, a series, a table or an array."""
    names = forward.names
    if isinstance(row, Mapping | pd.Series):
        find_columns(names, list(row.keys()), argument)
        if absent := [name for name in names if name not in row]:
            raise ValueError(f"{argument} has no value of {absent[0]!r}.")
        row = pd.DataFrame({name: [row[name]] for name in names})
    elif not is_table(row):
        row = pd.DataFrame(np.atleast_2d(np.asarray(row, dtype=object)), columns=names)
    with warnings.catch_warnings(action="ignore", category=TableWarning):
        encoded = forward.encode(row)
    if len(encoded) != 1:
        raise ValueError(f"{argument} must be one row, not {len(encoded)}.")
    for j in forward.schema.categorical:
        levels = [str(level) for level in forward.schema.categories[j]]
        if encoded[0, j] >= len(levels):
            what = f"{argument} has a category of {names[j]!r} that no known row has"
            raise ValueError(f"{what}; known are {', '.join(levels[:_MAX_NAMED])}.")
    return encoded[0]


def _fixed_values(forward, fixed, origin):
    """The value of each fixed column by its position; None is that of each known row."""
    fixed = [fixed] if isinstance(fixed, str) else fixed or []
    fixed = fixed if isinstance(fixed, Mapping) else dict.fromkeys(fixed)
    columns = find_columns(forward.names, list(fixed), "fixed")
    row = forward.table(forward.known[:1] if origin is None else origin[None]).iloc[0].to_dict()
    row |= {name: value for name, value in fixed.items() if value is not None}
    encoded, values = _encode_row(forward, row, "fixed"), {}
    for j, value in zip(columns, fixed.values(), strict=True):
        values[j] = None if origin is None and value is None else encoded[j]
        if values[j] != values[j]:  # NaN
            raise ValueError(f"The fixed column {forward.names[j]!r} has no value.")
    return values


def _make_space(forward, values, bounds, constraints):
    """The columns that may change, their bounds and the constraints."""
    names, schema, known_rows = forward.names, forward.schema, forward.known
    low, high = np.fmin.reduce(known_rows), np.fmax.reduce(known_rows)
    is_whole = np.all(np.isnan(known_rows) | (known_rows == np.round(known_rows)), axis=0)
    texts = [constraints] if isinstance(constraints, str) else list(constraints)
    linear = parse_constraints(texts, names)
    low[schema.categorical] = high[schema.categorical] = 0.0
    for name, j in zip(bounds, find_columns(names, list(bounds), "bounds"), strict=True):
        ends = parse_range(f"bounds of {name!r}", bounds[name], known_rows[:, j])
        low[j], high[j] = np.where(np.isinf(ends), (low[j], high[j]), ends)
        if is_whole[j]:
            low[j], high[j] = np.ceil(low[j]), np.floor(high[j])
    for j in schema.categorical:
        if names[j] in bounds or linear[0][:, j].any():
            raise ValueError(f"Bounds and constraints need numeric columns; {names[j]!r} is not.")
    is_free = (high > low) | np.isin(names, list(bounds))
    is_free[list(values)] = False
    return SearchSpace(low, high, is_free, is_whole, linear)


# --- search ---------------------------------------------------------------------------------------


def _starts(forward, search, origin, values, rng):
    """Rows from which the search starts, and (row, variable) the variables that may change.

    They are different known rows whose value is near the target. If a row is given, they are also
    those nearest to it, and the row itself: with all columns free, with one of them, and with each
    other category.
    """
    space, goals, n_free = search.space, search.goals, search.space.is_free.sum()
    usable = ~np.isnan(forward.known[:, list(values)]).any(axis=1)
    known_rows = _fill(forward.known, forward, space)[usable]
    loss = goals.loss(search.approximate(known_rows))
    order = np.lexsort((rng.permutation(len(known_rows)), loss))
    best = order[: max(2 * _N_STARTS, len(order) // 3)]
    rows = [known_rows[select_different(known_rows / space.width, best, _N_STARTS, 0.5)]]
    if origin is not None:
        nearest = np.argsort(forward.distances(known_rows, origin[None])[:, 0])[:_N_STARTS]
        rows = [np.repeat(origin[None], n_free + 1, axis=0), *rows, known_rows[nearest]]
        for j in set(forward.schema.categorical) - set(values):
            for code in np.unique(known_rows[:, j]):
                rows.append(np.where(np.arange(len(origin)) == j, code, origin)[None])
    starts = np.concatenate(rows)
    moving = np.ones((len(starts), n_free), dtype=bool)
    if origin is not None:
        moving[:n_free] = np.eye(n_free)
    for j, value in values.items():
        starts[:, j] = starts[:, j] if value is None else value
    starts, is_possible = space.rows(space.variables(starts), starts)
    if not is_possible.any() or (space.low > space.high).any():  # as 2.2..2.8 of whole numbers
        raise ValueError("No row satisfies the constraints within the bounds and fixed columns.")
    return starts[is_possible], moving[is_possible]


def _fill(rows, forward, space):
    """Rows with medians of the known values for missing values of free columns."""
    return np.where(np.isnan(rows) & space.is_free, known_medians(forward.known), rows)


def _move(forward, search, origin, rows, moving, predict, n):
    """The most promising rows, then these rows as moved by the model, and the ends of both."""
    space = search.space
    rows, ends = search.descend(rows, moving, search.approximate, _APPROXIMATE_STEPS)
    order = _order(forward, search.goals, origin, rows, ends)
    chosen = select_different(rows / space.width, order, max(_LEAST_CANDIDATES, 3 * n), _GAP)
    moving = np.tile(moving, (2, 1))[chosen]
    if (space.is_free & ~space.is_whole).any():  # whole numbers are those of the approximation
        moving &= ~space.is_whole[space.is_free]
    return search.descend(rows[chosen], moving, predict, _STEPS)


def _order(forward, goals, origin, rows, ends):
    """The rows in the order of preference: those that reach the goals, and of others the closest.

    Of those that reach the goals, applicable ones are first, then those nearest to the given row or
    with the least expected error. Where a target is maximized, the best are first.
    """
    is_reached, loss = goals.is_reached(ends), goals.loss(ends)
    preference, classes = forward.rate(rows)
    if origin is not None:
        preference = forward.distances(rows, origin[None])[:, 0]
    is_exact = goals.miss(ends).max(axis=1) <= _EXACT
    is_outside = classes == LABELS.index(OUTSIDE)
    by_preference = is_reached & ~goals.direction.any()
    keys = np.where(by_preference, (preference, is_outside, ~is_exact), loss)
    return np.lexsort((*keys, ~is_reached))


def _solutions(order, is_reached):
    """Those of the rows that reach the target; else, with a warning, all rows as moved."""
    if is_reached.any():
        return order[is_reached[order]]
    message = "No row was found that reaches the target; the closest ones are returned."
    warnings.warn(message, UnreachedTargetWarning, stacklevel=3)
    return order[2 * order >= len(order)]


# --- result ---------------------------------------------------------------------------------------


def _tabulate(forward, space, goals, origin, rows, is_reached, intervals):
    """The table of solutions; results get names that no input has."""
    nearest = forward.distances(rows, forward.known).argmin(axis=1)
    before = forward.known[nearest] if origin is None else np.tile(origin, (len(rows), 1))
    inputs, inputs_before = forward.table(rows), forward.table(before)
    results: dict[str, object] = {}
    for j, name in enumerate(forward.names):
        if forward.schema.kinds[j] == NUMERIC:
            results[f"change of {name}"] = rows[:, j] - before[:, j]
            if space.is_whole[j] and (rows[:, j] == np.round(rows[:, j])).all():
                inputs[name] = rows[:, j].astype(int)
        else:
            pairs = zip(inputs_before[name], inputs[name], strict=True)
            results[f"change of {name}"] = ["" if a == b else f"{a} → {b}" for a, b in pairs]
    labels = forward.anchor_labels
    results["anchor"] = nearest if labels is None else [labels[i] for i in nearest]
    predicted = forward.predict(rows)
    for output, name in enumerate(forward.target_names):
        end = f"_{name}" if len(forward.target_names) > 1 else ""
        results[f"predicted{end}"] = predicted[:, output, 0]
        if intervals is not None:
            results[f"lower{end}"], results[f"upper{end}"] = intervals[:, output].T
            if output in goals.ranges:
                probability = forward.probability(rows, *goals.ranges[output])
                results[f"probability{end}"] = probability[:, output, 0]
    results["applicable"] = np.array(LABELS, dtype=object)[forward.rate(rows)[1]]
    results["distance"] = np.diag(forward.distances(rows, before))
    results["reached"] = is_reached
    for name, values in results.items():
        while name in inputs:
            name += "_"
        inputs[name] = values
    return inputs
