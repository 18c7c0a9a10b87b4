"""Invalid inputs of public functions raise a ValueError or TypeError that shows the fault.

Each fault is drawn many times with random positions, sizes and values, more than 500 inputs in all.
Unusual but valid inputs (a constant target, duplicated rows) must give correct predictions.
"""

import re
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

import twinned
from twinned import (
    AllPairs,
    NearestAnchors,
    NearestPairs,
    NeuralRegressor,
    NeuralTraining,
    RandomAnchors,
    RandomPairs,
    TwinNeuralRegressor,
    TwinRegressor,
    datasets,
)

EXAMPLES = 2
seeds = st.integers(0, 10**6)


def table(seed, n=12, d=3):
    rng = np.random.RandomState(seed)
    return rng.normal(size=(n, d)), rng.normal(size=n)


# Fitted when they are first used, not when the tests are collected.


@cache
def fitted_twin():
    return TwinRegressor(Ridge()).fit(*table(0))


@cache
def fitted_neural(estimator):
    return estimator((4,), n_members=1, training=NeuralTraining(n_folds=1, max_steps=2)).fit(
        *table(0)
    )


def draw_position(draw, X):
    return tuple(draw(st.integers(0, size - 1)) for size in X.shape)


# --- faults of X: (draw, X) → (invalid X, pattern of the message) ---------------------------------


def with_nan(draw, X):
    position = draw_position(draw, X)
    X[position] = np.nan
    return X, rf"NaN.*row {position[0]}, column {position[1]}"


def with_infinity(draw, X):
    position = draw_position(draw, X)
    X[position] = draw(st.sampled_from([np.inf, -np.inf]))
    return X, rf"infinity.*row {position[0]}.*inf"


def with_huge_value(draw, X):
    position, value = draw_position(draw, X), float(f"1e{draw(st.integers(151, 307))}")
    X[position] = value
    return X, rf"X\[{position[0]}, {position[1]}\] = {value:.0e}".replace(
        "+", r"\+"
    ) + ".*too large"


def with_text(draw, X):
    text = draw(st.sampled_from(["oak", "n/a", "", "twelve", "1,5"]))
    X = X.astype(object)
    X[draw_position(draw, X)] = text
    return X, f"{text}"


def with_dict(draw, X):
    X = X.astype(object)
    X[draw_position(draw, X)] = {"foo": 1}
    return X, "dict|foo"


def as_object_column(draw, X):
    frame = pd.DataFrame(X, columns=list("abc")).astype({"b": object})
    row = draw(st.integers(0, len(X) - 1))
    frame.loc[row, "b"] = "granite"
    return frame, "'b'.*'granite'"


def one_dimensional(draw, X):
    return X[:, draw(st.integers(0, 2))], "2D|2-dim|dimension"


def three_dimensional(draw, X):
    return np.stack([X] * draw(st.integers(1, 3))), r"dim 3|dimension"


def no_rows(draw, X):
    return X[:0], r"0 sample"


def no_columns(draw, X):
    return X[:, :0], r"0 feature"


def complex_numbers(draw, X):
    return X + 1j * draw(st.integers(1, 9)), "[Cc]omplex"


def dates(draw, X):
    frame = pd.DataFrame(X, columns=list("abc"))
    frame["b"] = pd.date_range("2024-01-01", periods=len(X))
    return frame, "'b'"


def a_scalar(draw, X):
    value = draw(st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans()))
    return value, "array|Expected|scalar|length|number"


def nothing(draw, X):
    return None, "None|NoneType|array"


def sparse(draw, X):
    from scipy.sparse import csr_array

    return csr_array(X), "[Ss]parse"


def wrong_width(draw, X):
    width = draw(st.sampled_from([1, 2, 4, 7]))
    return np.ones((len(X), width)), rf"{width} features?.*3"


def ragged(draw, X):
    return [[1.0, 2.0, 3.0], [1.0] * draw(st.integers(0, 2))], "inhomogeneous|sequence|shape"


X_FAULTS = [
    with_nan,
    with_infinity,
    with_huge_value,
    with_text,
    with_dict,
    as_object_column,
    one_dimensional,
    three_dimensional,
    no_rows,
    no_columns,
    complex_numbers,
    dates,
    a_scalar,
    nothing,
    sparse,
    ragged,
]
FUNCTIONS = {
    "neural fit": lambda X: TwinNeuralRegressor(n_members=1).fit(X, np.arange(12.0)),
    "neural predict": lambda X: fitted_neural(TwinNeuralRegressor).predict(X),
    "neural predict_difference": lambda X: fitted_neural(TwinNeuralRegressor).predict_difference(
        X, table(1)[0]
    ),
    "plain fit": lambda X: NeuralRegressor(n_members=1).fit(X, np.arange(12.0)),
    "plain predict": lambda X: fitted_neural(NeuralRegressor).predict(X),
    "fit": lambda X: TwinRegressor(Ridge()).fit(X, np.arange(12.0)),
    "predict": lambda X: fitted_twin().predict(X),
    "predict_difference": lambda X: fitted_twin().predict_difference(X, table(1)[0]),
    "predict_difference second": lambda X: fitted_twin().predict_difference(table(1)[0], X),
    "predict_anchors": lambda X: fitted_twin().predict_anchors(X),
    "loop_inconsistency": lambda X: fitted_twin().loop_inconsistency(X),
    "explain": lambda X: fitted_twin().explain(X),
    "add_anchors": lambda X: fitted_twin().add_anchors(X, np.arange(12.0)),
    "score": lambda X: fitted_twin().score(X, np.arange(12.0)),
}


def check_raises(call, message):
    with pytest.raises((ValueError, TypeError)) as raised:
        call()
    text = str(raised.value)
    assert re.search(message, text, re.DOTALL), f"{text!r} does not show {message!r}"


@pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")
@pytest.mark.filterwarnings("ignore:X has feature names:UserWarning")
@pytest.mark.parametrize(
    ("fault", "function"),
    [
        pytest.param(fault, name, id=f"{fault.__name__}-{name}")
        for fault in X_FAULTS
        for name in FUNCTIONS
        # networks impute missing values
        if fault is not with_nan or not name.startswith(("neural", "plain"))
    ],
)
@settings(max_examples=EXAMPLES)
@given(data=st.data(), seed=seeds)
def test_bad_X(fault, function, data, seed):
    X, message = fault(data.draw, table(seed)[0])
    check_raises(lambda: FUNCTIONS[function](X), message)


@pytest.mark.parametrize("function", [name for name in FUNCTIONS if "fit" not in name])
@settings(max_examples=EXAMPLES)
@given(data=st.data(), seed=seeds)
def test_wrong_number_of_features(function, data, seed):
    X, message = wrong_width(data.draw, table(seed)[0])
    check_raises(lambda: FUNCTIONS[function](X), message)


@settings(max_examples=EXAMPLES)
@given(seed=seeds, names=st.permutations(["a", "b", "c"]), other=st.sampled_from(["x", "A", "a "]))
def test_other_feature_names(seed, names, other):
    X = pd.DataFrame(table(seed)[0], columns=list("abc"))
    twin = TwinRegressor(Ridge()).fit(X, table(seed)[1])
    check_raises(lambda: twin.predict(X.rename(columns={names[0]: other})), f"{other}")
    check_raises(lambda: twin.predict(X.drop(columns=names[0])), f"{names[0]}")
    if names != ["a", "b", "c"]:
        check_raises(lambda: twin.predict(X[names]), "order")


@settings(max_examples=EXAMPLES)
@given(seed=seeds)
def test_single_row_is_too_few(seed):
    X, y = table(seed, n=1)
    check_raises(lambda: TwinRegressor(Ridge()).fit(X, y), "1 sample")


# --- faults of y and of weights -------------------------------------------------------------------


def y_with_nan(draw, y):
    row = draw(st.integers(0, len(y) - 1))
    y[row] = np.nan
    return y, rf"y\[{row}\] = nan"


def y_with_infinity(draw, y):
    row = draw(st.integers(0, len(y) - 1))
    y[row] = -np.inf
    return y, rf"y\[{row}\] = -inf"


def y_with_huge_value(draw, y):
    row = draw(st.integers(0, len(y) - 1))
    y[row] = 1e200
    return y, rf"y\[{row}\] = 1e\+200"


def y_of_text(draw, y):
    text = draw(st.sampled_from(["high", "low", "?"]))
    values = y.astype(object)
    values[draw(st.integers(0, len(y) - 1))] = text
    return values, rf"'{text}'".replace("?", r"\?")


def y_too_short(draw, y):
    cut = draw(st.integers(1, len(y) - 1))
    return y[:cut], f"{cut}.*|.*{cut}"


def y_missing(draw, y):
    return None, "None"


def y_three_dimensional(draw, y):
    return y.reshape(-1, 1, 1), r"dim 3|shape|dimension"


def y_empty(draw, y):
    return y[:0], "0"


Y_FAULTS = [
    y_with_nan,
    y_with_infinity,
    y_with_huge_value,
    y_of_text,
    y_too_short,
    y_missing,
    y_three_dimensional,
    y_empty,
]


@pytest.mark.parametrize("fault", Y_FAULTS, ids=lambda fault: fault.__name__)
@settings(max_examples=EXAMPLES)
@given(data=st.data(), seed=seeds)
def test_bad_y(fault, data, seed):
    X, y = table(seed)
    bad, message = fault(data.draw, y)
    check_raises(lambda: TwinRegressor(Ridge()).fit(X, bad), message)
    check_raises(lambda: fitted_twin().add_anchors(X, bad), message)


@given(data=st.data(), seed=seeds)
def test_bad_weights(data, seed):
    X, y = table(seed)
    row = data.draw(st.integers(0, 11))
    weight = np.ones(12)
    value, message = data.draw(
        st.sampled_from(
            [
                (-1.5, rf"sample_weight\[{row}\] = -1.5"),
                (np.nan, "sample_weight contains NaN"),
                (np.inf, "sample_weight contains infinity"),
            ]
        )
    )
    weight[row] = value
    check_raises(lambda: TwinRegressor(Ridge()).fit(X, y, sample_weight=weight), message)
    short = np.ones(row)
    check_raises(lambda: TwinRegressor(Ridge()).fit(X, y, sample_weight=short), f"{row}")
    square = np.ones((12, 12))
    check_raises(lambda: TwinRegressor(Ridge()).fit(X, y, sample_weight=square), "12, 12")


# --- text in place of numbers ---------------------------------------------------------------------


@cache
def calibrated_twin():
    return twinned.cross_conformal(TwinRegressor(Ridge()), *table(0, n=30), cv=2, random_state=0)


X12, Y12 = table(0)
TEXTS = ["abc"] * 12
LIST = [["abc", 1.0, 2.0]] * 12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TwinRegressor(Ridge()).fit(LIST, Y12), "Column 0 .*row 0 holds 'abc'"),
        (lambda: fitted_twin().predict(LIST), "Column 0 .*row 0 holds 'abc'"),
        (lambda: fitted_twin().predict(np.array(LIST)), "Column 0 .*row 0 holds 'abc'"),
        (lambda: twinned.AutoTwinRegressor().fit(LIST, Y12), "Column 0 .*row 0 holds 'abc'"),
        (lambda: TwinRegressor(Ridge()).fit(X12, Y12, TEXTS), "sample_weight.*'abc'"),
        (lambda: TwinRegressor(Ridge()).fit(X12, Y12, y_std=TEXTS), "y_std.*'abc'"),
        (lambda: TwinRegressor(Ridge()).fit(X12, Y12, y_std="high"), "y_std.*'high'"),
        (lambda: TwinRegressor(Ridge()).fit(X12, Y12, y_lower=TEXTS), "y_lower.*'abc'"),
        (lambda: twinned.TransformedTargetTwin(Ridge()).fit(X12, TEXTS), "y must.*'abc'"),
        (lambda: calibrated_twin().predict_quantiles(X12, ["abc"]), "quantiles.*'abc'"),
        (lambda: calibrated_twin().predict_quantiles(X12, "abc"), "quantiles.*'abc'"),
        (lambda: calibrated_twin().predict_interval(X12, "abc"), "confidence.*'abc'"),
        (lambda: calibrated_twin().predict_cdf(X12, "abc"), "y must.*'abc'"),
        (lambda: calibrated_twin().log_density(X12, TEXTS), "y must.*'abc'"),
        (lambda: calibrated_twin().probability_better(X12, than="abc"), "than.*'abc'"),
        (lambda: twinned.solve(fitted_twin(), "abc"), "target.*'abc'"),
        (lambda: twinned.solve(fitted_twin(), 0.0, bounds={"x0": "abc"}), "bounds of 'x0'.*'abc'"),
        (lambda: twinned.solve(fitted_twin(), 0.0, bounds={"x0": ("a", 1)}), "bounds of 'x0'.*'a'"),
        (lambda: twinned.solve(fitted_twin(), 0.0, bounds="abc"), "bounds names 'a'"),
        (lambda: twinned.solve(fitted_twin(), 0.0, near=["abc", 1, 2]), "Column 0 .*'abc'"),
        (lambda: twinned.query(fitted_twin(), X12, "abc"), "n must.*'abc'"),
        (
            lambda: twinned.cross_conformal(TwinRegressor(Ridge()), X12, Y12, batch=["a", "b"]),
            "batch must be .* 12 rows",
        ),
        (lambda: fitted_neural(NeuralRegressor).predict(LIST), "Column 0 .*row 0 holds 'abc'"),
    ],
)
def test_text_in_place_of_numbers(call, message):
    check_raises(call, message)


@pytest.mark.parametrize(
    ("estimator", "arguments"),
    [
        (TwinRegressor(), ["X_val", "y_val"]),
        (TwinNeuralRegressor(), ["groups"]),
        (NeuralRegressor(), ["groups", "batch", "y_std"]),
        (twinned.SemiSupervisedTwinRegressor(), ["groups", "batch", "X_val", "y_lower"]),
        (twinned.AutoTwinRegressor(), ["X_val", "y_val"]),
        (twinned.InverseTwinRegressor(), ["groups", "batch", "X_val", "sample_weight"]),
        (twinned.TransformedTargetTwin(TwinNeuralRegressor()), ["groups"]),
    ],
)
def test_arguments_that_a_fit_does_not_have(estimator, arguments):
    for name in arguments:
        message = f"unexpected keyword argument '{name}'"
        values = np.ones((12, 3)) if name == "X_val" else np.arange(12) % 2
        check_raises(lambda n=name, v=values: estimator.fit(X12, np.exp(Y12), **{n: v}), message)
    check_raises(
        lambda: twinned.cross_conformal(Ridge(), X12, Y12, batch=["a", "b"] * 6),
        "unexpected keyword argument 'batch'",
    )


# --- faults of parameters -------------------------------------------------------------------------

not_a_count = st.sampled_from([0, -1, -7, 1.5, 2.0, True, "3", None, [1], np.nan, {}, object()])
not_a_choice = st.sampled_from(["nearest", "", "ALL", 2.5, None, [], ("all",), object(), True])


def shows(value):
    return re.escape(repr(value))


@given(bad=not_a_count, seed=seeds)
def test_bad_counts(bad, seed):
    X, y = table(seed)
    for strategy in (
        {"pairs": RandomPairs(bad)},
        {"pairs": NearestPairs(bad)},
        {"anchors": NearestAnchors(bad)},
        {"anchors": RandomAnchors(bad)},
    ):
        check_raises(lambda s=strategy: TwinRegressor(Ridge(), **s).fit(X, y), shows(bad))
    check_raises(lambda: fitted_twin().explain(X, n=bad), shows(bad))
    check_raises(lambda: fitted_twin().loop_inconsistency(X, n_loops=bad), shows(bad))
    check_raises(lambda: datasets.make_tf(bad), shows(bad))
    check_raises(lambda: datasets.make_rcl(bad), shows(bad))
    check_raises(lambda: datasets.make_wsb(bad), shows(bad))


@given(bad=not_a_choice, seed=seeds)
def test_bad_choices(bad, seed):
    X, y = table(seed)
    for name in ("pairs", "anchors", "weights", "pair_features"):
        if name == "anchors" and bad is True:
            continue
        check_raises(lambda n=name: TwinRegressor(Ridge(), **{n: bad}).fit(X, y), shows(bad))
    if bad is not True:
        check_raises(lambda: TwinRegressor(Ridge(), symmetric=bad).fit(X, y), shows(bad))
        check_raises(lambda: fitted_twin().predict(X, return_std=bad), shows(bad))
    check_raises(lambda: datasets.load(bad), shows(bad))


@pytest.mark.parametrize(
    "bad", ["512 apples", "", "MB", "-5MB", -1, 0, np.nan, np.inf, True, [], {}, "1e3MB", "5iB"]
)
def test_bad_memory_limits(bad):
    check_raises(lambda: TwinRegressor(Ridge(), memory_limit=bad).fit(*table(0)), shows(bad))


@pytest.mark.parametrize("bad", [["d"], [3], "names", 5, [True], ["a", None], len], ids=str)
def test_bad_categorical_features(bad):
    X, y = table(0)
    frame = pd.DataFrame(X, columns=list("abc"))
    shown = shows(bad[-1]) if isinstance(bad, list) and bad != [True] else ".*"
    check_raises(lambda: TwinRegressor(Ridge(), categorical_features=bad).fit(frame, y), shown)


@given(bad=st.sampled_from([5, None, AllPairs(), "euclid", "", len]), seed=seeds)
def test_bad_metrics(bad, seed):
    X, y = table(seed)
    for strategy in ({"pairs": NearestPairs(2, bad)}, {"anchors": NearestAnchors(2, bad)}):
        check_raises(lambda s=strategy: TwinRegressor(Ridge(), **s).fit(X, y), shows(bad))


@given(bad=st.sampled_from(["a", 1.5, [1, 2], object()]), seed=seeds)
def test_bad_random_state(bad, seed):
    X, y = table(seed)
    check_raises(lambda: TwinRegressor(Ridge(), random_state=bad).fit(X, y), "seed|RandomState")
    check_raises(lambda: fitted_twin().loop_inconsistency(X, random_state=bad), "seed|RandomState")


@given(bad=st.sampled_from([-1, 1.5, "0", None, True, [0]]))
def test_bad_seeds_of_splits(bad):
    check_raises(lambda: datasets.paper_split(100, bad), shows(bad))
    check_raises(lambda: datasets.forest_split(bad), shows(bad))


@pytest.mark.parametrize("noise", [-0.1, np.nan, np.inf, "loud", [0.1]])
def test_bad_noise(noise):
    for make in (datasets.make_tf, datasets.make_rcl, datasets.make_wsb):
        check_raises(lambda make=make: make(10, noise=noise), shows(noise))


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("effort", "heroic"),
        ("effort", 3),
        ("hidden_sizes", 128),
        ("hidden_sizes", ()),
        ("hidden_sizes", (128, 0)),
        ("activation", "sine"),
        ("embedding", "waves"),
        ("embedding", -0.5),
        ("learning_rate", 0.0),
        ("learning_rate", "fast"),
        ("dropout", 1.0),
        ("weight_decay", -1.0),
        ("validation_fraction", 1.5),
        ("selection", "best"),
        ("device", "abacus"),
        ("n_members", 0),
        ("max_steps", 1.5),
        ("batch_size", -4),
        ("n_folds", 2.0),
    ],
)
@pytest.mark.parametrize("estimator", [TwinNeuralRegressor, NeuralRegressor])
def test_bad_neural_parameters(estimator, name, bad):
    wrong = estimator((4,), n_members=2, training=NeuralTraining(max_steps=2))
    of_training = name in wrong.training.get_params()
    (wrong.training if of_training else wrong).set_params(**{name: bad})
    shown = shows(bad) if bad != (128, 0) else "0"
    check_raises(lambda: wrong.fit(*table(0)), shown)


# --- unusual but valid: correct predictions -------------------------------------------------------


@given(seed=seeds, value=st.floats(-1e38, 1e38))
def test_constant_target_is_predicted(seed, value):
    X, _ = table(seed)
    for base in (Ridge(), DecisionTreeRegressor(), None):
        twin = TwinRegressor(base).fit(X, np.full(12, value))
        mean, std = twin.predict(X + 1, return_std=True)
        np.testing.assert_allclose(mean, value, rtol=1e-9)
        assert (std <= 1e-9 * abs(value)).all()


@given(seed=seeds, rows=st.integers(2, 6))
def test_identical_rows_are_predicted_by_their_mean(seed, rows):
    rng = np.random.RandomState(seed)
    X, y = np.ones((rows, 2)), rng.normal(size=rows)
    twin = TwinRegressor(DecisionTreeRegressor(), pairs="all").fit(X, y)
    np.testing.assert_allclose(twin.predict(X), y.mean(), atol=1e-12)


@given(seed=seeds, exponent=st.integers(-2, 37))
def test_extreme_scales(seed, exponent):
    """No overflow up to the limits of input validation.

    Scales below 1e-2 are not tested: scikit-learn's trees stop splitting at tiny impurities.
    """
    X, y = table(seed)
    scale = 10.0**exponent
    plain = TwinRegressor(DecisionTreeRegressor(random_state=0)).fit(X, y).predict(X)
    scaled = TwinRegressor(DecisionTreeRegressor(random_state=0)).fit(X, y * scale).predict(X)
    np.testing.assert_allclose(scaled / scale, plain, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("model", [None, 5, "model", TwinRegressor(), TwinRegressor])
def test_objects_that_cannot_be_saved(tmp_path, model):
    with pytest.raises((ValueError, TypeError)):
        twinned.save(model, tmp_path / "model.twin")
    assert not list(tmp_path.iterdir())
