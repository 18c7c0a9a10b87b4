"""Faults planted into clean tables are reported, and clean tables raise none of their codes."""

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets

from twinned.datasets import load, make_rcl, make_tf, make_wsb
from twinned.diagnostics import check_data
from twinned.diagnostics.data_checks import CheckedTable, check_leaks

FAULTS = {"TW105", "TW201"}


def column_as_target(bunch, column):
    """All columns of a data set of scikit-learn, one of them as the target, and the class."""
    X = np.column_stack([np.delete(bunch.data, column, axis=1), bunch.target])
    return X, bunch.data[:, column]


def mixed_table():
    rng = np.random.RandomState(0)
    X = pd.DataFrame({"a": rng.rand(250), "n": rng.randint(1, 8, 250)})
    X["kind"] = pd.Categorical(rng.choice(list("pqrs"), 250))
    X["age"] = rng.randint(0, 90, 250)
    return X, 3 * X["a"] + X["n"] + 2 * (X["kind"] == "p") + 0.5 * rng.normal(size=250)


def designed_table():
    levels = np.array(np.meshgrid(*[np.arange(4.0)] * 4)).reshape(4, -1).T
    noise = 0.3 * np.random.RandomState(0).normal(size=len(levels))
    return levels, levels[:, 0] * levels[:, 1] + np.sin(levels[:, 2]) + noise


MAKERS = {
    "diabetes": lambda: datasets.load_diabetes(return_X_y=True, scaled=False),
    "cancer": lambda: column_as_target(datasets.load_breast_cancer(), 4),
    "wine": lambda: column_as_target(datasets.load_wine(), 0),
    "friedman1": lambda: datasets.make_friedman1(250, noise=1.0, random_state=0),
    "friedman2": lambda: datasets.make_friedman2(250, noise=10.0, random_state=0),
    "friedman3": lambda: datasets.make_friedman3(250, noise=0.1, random_state=0),
    "linear": lambda: datasets.make_regression(200, 15, n_informative=5, noise=20, random_state=0),
    "sparse": lambda: datasets.make_sparse_uncorrelated(250, 10, random_state=0),
    "tf": lambda: make_tf(250, random_state=0),
    "rcl": lambda: make_rcl(250, noise=0.1, random_state=0),
    "wsb": lambda: make_wsb(250, noise=0.1, random_state=0),
    "mixed": mixed_table,
    "designed": designed_table,
}


QUICK = {"mixed", "designed"}  # the others are slow tests


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in MAKERS],
)
def table(request):
    X, y = MAKERS[request.param]()
    X = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X).add_prefix("x")
    return X.iloc[:220], np.asarray(y, dtype=float)[:220]


def codes(X, y, **options):
    return {finding.code for finding in check_data(X, y, **options)}


def test_clean_table(table):
    assert not codes(*table) & FAULTS


@pytest.mark.parametrize("kind", ["other unit", "monotone", "noisy", "rounded"])
def test_leak(table, rng, kind):
    X, y = table
    standard = (y - y.mean()) / y.std()
    leak = {
        "other unit": 1.8 * y + 32,
        "monotone": -np.exp(standard / 2),
        "noisy": y + 0.02 * y.std() * rng.normal(size=len(y)),
        "rounded": np.round(standard, 1),
    }[kind]
    found = list(check_leaks(CheckedTable.encode(X.assign(leak=leak), y)))
    assert [list(own.numbers["r2"]) for own in found] == [["leak"]]
    assert "'leak'" in found[0].message


@pytest.mark.slow
@pytest.mark.parametrize("key", ["BC", "BH", "CS", "EE", "RCL", "TF", "WN", "WSB", "YH"])
def test_data_sets_of_the_paper(key, data_folder):
    assert not codes(*load(key)) & FAULTS
