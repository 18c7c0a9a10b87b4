"""Every method of a fitted model, for every estimator and wrapper, with every kind of rows.

Each method either works, with what must be true of its result (`checked_methods.py`), or is
refused in one line that names the parameter (`REFUSED`). A test has one fitted model, and calls all
methods.
"""

import re
from functools import partial

import pandas as pd
import pytest

from tests.properties.checked_methods import FUNCTIONS, METHODS, close
from tests.properties.fitted_models import CONDITIONS, ESTIMATORS, fit

QUICK = [("blend", "batch"), ("blend", "targets"), ("blend", "dask"), ("nearest", "added")]
QUICK += [("crossed", "y_std")]

# Names of patterns: models without prediction intervals, and those of a transformed target
UNCALIBRATED = "(?!blend|power|conformal|crossed)[a-z ]+"
CALIBRATED = "(blend|power|conformal|crossed)"
TRANSFORMED = "((log|power)/[a-z_]+|[a-z ]+/transformed)"
NO_ARGUMENT = "unexpected keyword argument"
# Methods that are refused, by estimator/rows/method, and what the line says.
REFUSED = [
    ("semi.*/(batch|censored|y_std|groups)/fit", NO_ARGUMENT),
    ("neural twin/groups/fit", NO_ARGUMENT),
    ("networks/(batch|y_std|groups)/fit", NO_ARGUMENT),
    ("conformal/(censored|y_std|weights|groups)/fit", NO_ARGUMENT),
    ("crossed/(censored|weights)/fit", NO_ARGUMENT),
    ("(conformal|crossed|power)/targets/fit", "y has 2 (columns|targets)"),
    ("log/transformed/fit", "needs positive y"),
    ("semi.*/transformed/fit", "Input y contains NaN"),  # TransformedTargetTwin needs all y
    # no twin
    ("networks/.*/(mean|anchors|adjustments|difference|sample|rank|better)", "NeuralRegressor"),
    ("networks/.*/(applicability|loops|relevance|command|service|measured)", "NeuralRegressor"),
    ("networks/.*/c_code", "NeuralRegressor is no twin|Pipeline"),
    ("networks/added/fit", "no attribute 'add_anchors'"),
    ("networks/.*/added", "add_anchors"),
    # pipelines have the methods of scikit-learn, and `explain` and `predict_interval` of twinned
    (".*/pipeline/(anchors|members|difference|sample|rank|better)", "Pipeline|Calibrated"),
    (".*/pipeline/(applicability|loops|relevance|added|command|service)", "Pipeline|Calibrated"),
    (".*/pipeline/(c_code|measured)", "Pipeline|Calibrated"),
    ("(blend|power)/pipeline/(quantiles|density|distribution|scores)", "Pipeline"),
    ("(conformal|crossed)/pipeline/(saved|onnx)", "Calibrated"),
    ("(?!conformal|crossed).*/pipeline/value", "argument 'of'"),
    (f"{UNCALIBRATED}/.*/(interval|value)", "no calibration|NeuralRegressor"),
    (f"{UNCALIBRATED}/.*/(quantiles|density|distribution)", "no calibration|Pipe|NeuralRegressor"),
    (f"{UNCALIBRATED}/.*/(scores|display)", "no calibration|Pipeline|NeuralRegressor"),
    (f"{CALIBRATED}/(?!y_std)[a-z]+/value", "need a fit with y_std|argument 'of'"),
    (".*/dask/(quantiles|density|distribution|anchors|difference)", "X is lazy"),
    (".*/dask/(sample|rank|better|applicability|loops|members)", "X is lazy"),
    (".*/targets/(sample|rank|better|query)", "single output|targets_"),
    (".*/targets/(display|service|c_code)", "single target|targets|outputs"),
    ("blend/targets/(anchors|members|relevance)", "targets_"),
    (".*/targets/measured", "y has 2 columns|targets_"),
    (f"{TRANSFORMED}/(difference|loops)", "not defined for a transformed target"),
    (f"{TRANSFORMED}/c_code", "a transformed target"),
    ("(power/.*|.*/transformed)/onnx", "use target_transform='log'"),
    ("(blend|power|neural twin|semi neural)/.*/c_code", "does not support"),
    (".*/batch/(onnx|c_code)", "batches"),
    ("(twin|crossed)/.*/c_code", "supports trees"),
    ("nearest/.*/(onnx|c_code)", "anchors"),
    (f"{TRANSFORMED}/measured", "must be a twin or a blend"),
    ("semi.*/measured", "must be a twin or a blend"),
    (".*/added/measured|conformal/.*/measured", "anchors of the twin must be all rows"),
    (".*/censored/measured", "y contains NaN"),
    ("blend/loaded/measured", "fit it again"),
    (".*/pipeline/solve|(conformal|crossed)/pipeline/query", "must be a twin, not a"),
    ("networks/(?!dask).*/(query|solve)|networks/transformed/fit", "must be a twin"),
]


def error_of(call):
    """None where a call works, else its error."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def check(case, method):
    """What is true of the result, and that it is the one of the reference."""
    result = method(case)
    if case.reference is not None and result is not None:
        expected = method(case.reference)
        results = (result, expected) if isinstance(result, tuple) else ((result,), (expected,))
        for one, other in zip(*results, strict=True):
            if isinstance(one, pd.DataFrame):
                one, other = (table.reset_index(drop=True) for table in (one, other))
                pd.testing.assert_frame_equal(one, other, rtol=1e-5)
            else:
                close(one, other)


def describe_unexpected(cell, error):
    """None where a method does what the tables say, else what it does."""
    refusals = [message for pattern, message in REFUSED if re.fullmatch(pattern, cell)]
    if error is None:
        return f"{cell} works: remove it from REFUSED" if refusals else None
    is_line = "\n" not in error and not error.startswith("AssertionError")
    if is_line and any(re.search(message, error) for message in refusals):
        return None
    return f"{cell} {'is refused by' if refusals else 'raises'} {error}"


PAIRS = [(name, condition) for name in ESTIMATORS for condition in CONDITIONS]


@pytest.mark.parametrize(
    ("name", "condition"),
    [pytest.param(*pair, marks=[] if pair in QUICK else pytest.mark.slow) for pair in PAIRS],
)
@pytest.mark.filterwarnings("ignore")
def test_every_method(name, condition):
    cases = []
    errors = {"fit": error_of(lambda: cases.append(fit(name, condition)))}
    for case in cases:
        for method in METHODS if condition == "dask" else METHODS + FUNCTIONS:
            errors[method.__name__] = error_of(partial(check, case, method))
    cells = {f"{name}/{condition}/{method}": error for method, error in errors.items()}
    unexpected = [describe_unexpected(cell, error) for cell, error in cells.items()]
    assert not any(unexpected), "\n".join(filter(None, unexpected))


def test_tables_have_no_other_cells():
    methods = ["fit", *(method.__name__ for method in METHODS + FUNCTIONS)]
    cells = [f"{name}/{condition}/{method}" for name, condition in PAIRS for method in methods]
    for pattern, _ in REFUSED:
        assert any(re.fullmatch(pattern, cell) for cell in cells), pattern
