"""Generators of TF, RCL and WSB: formulas, noise and arguments."""

import os

import numpy as np
import pytest

from twinned.datasets import load, make_rcl, make_tf, make_wsb, rcl_truth, tf_truth, wsb_truth

needs_files = pytest.mark.skipif(
    not os.environ.get("TWINNED_DATA"),
    reason="set TWINNED_DATA to the folder of the data files to run this check",
)
MAKERS = [make_tf, make_rcl, make_wsb]


def slow_tf(row):
    x1, x2 = row
    return x1 * x1 * x1 + x1 * x1 - x1 - 1 + x1 * x2 + np.sin(x2)


def slow_rcl(row, power):
    voltage, resistance, inductance, capacity, omega, time = row
    reactance = abs(omega * inductance - 1 / (omega * capacity)) ** power
    return voltage * np.cos(omega * time) / np.sqrt(resistance * resistance + reactance)


def slow_wsb(row):
    supply, r1, r2, r3 = row[:4]
    return supply * r2 / (r1 + r2) - supply * r3 / (r2 + r3)


def test_truths_equal_the_formulas_row_by_row():
    points = np.random.default_rng(0).uniform(1, 3, (20, 6))
    np.testing.assert_allclose(tf_truth(points[:, :2]), [slow_tf(row) for row in points[:, :2]])
    np.testing.assert_allclose(rcl_truth(points), [slow_rcl(row, 1) for row in points])
    np.testing.assert_allclose(
        rcl_truth(points, as_printed=True), [slow_rcl(row, 2) for row in points]
    )
    np.testing.assert_allclose(wsb_truth(points), [slow_wsb(row) for row in points])
    np.testing.assert_array_equal(wsb_truth(points), wsb_truth(points[:, :4]))


def test_make_tf_with_seed_0_is_the_papers_set():
    X, y = make_tf(n=1000, random_state=0)
    loaded_X, loaded_y = load("TF")
    np.testing.assert_array_equal(X, np.random.RandomState(0).random_sample((1000, 2)) * 2 - 1)
    np.testing.assert_array_equal(X, loaded_X)
    np.testing.assert_array_equal(y, loaded_y)
    np.testing.assert_array_equal(y, tf_truth(X))


@pytest.mark.parametrize(
    ("make", "truth", "printed", "expected"),
    [
        (make_rcl, rcl_truth, False, 0.01),
        (make_rcl, lambda X: rcl_truth(X, as_printed=True), True, 0.1),
        (make_wsb, wsb_truth, False, 0.0095),
        (make_wsb, wsb_truth, True, 0.1),
    ],
)
def test_noise_of_each_variant(make, truth, printed, expected):
    X, y = make(n=20_000, as_printed=printed, random_state=1)
    residual = y - truth(X)
    assert residual.std() == pytest.approx(expected, rel=0.02)
    assert abs(residual.mean()) < 4 * expected / np.sqrt(20_000)


@pytest.mark.parametrize("make", [make_rcl, make_wsb])
def test_variants_have_the_same_points_between_1_and_3(make):
    as_file, _ = make(n=2000, random_state=3)
    as_printed, _ = make(n=2000, as_printed=True, random_state=3)
    np.testing.assert_array_equal(as_file[as_printed.columns], as_printed)
    assert as_file.to_numpy().min() >= 1
    assert as_file.to_numpy().max() <= 3
    np.testing.assert_allclose(as_file.mean(), 2, atol=0.06)


def test_wsb_as_printed_has_the_four_features_of_the_text():
    assert list(make_wsb(as_printed=True)[0].columns) == ["U", "R1", "R2", "R3"]
    assert make_wsb()[0].shape == (200, 6)
    assert make_rcl()[0].shape == make_rcl(as_printed=True)[0].shape == (4000, 6)


@pytest.mark.parametrize("make", MAKERS)
def test_noise_changes_y_but_not_the_points(make):
    X_quiet, y_quiet = make(n=5000, noise=0, random_state=5)
    X_loud, y_loud = make(n=5000, noise=0.5, random_state=5)
    np.testing.assert_array_equal(X_quiet, X_loud)
    assert (y_loud - y_quiet).std() == pytest.approx(0.5, rel=0.05)
    assert set(X_loud.dtypes.astype(str)) == {"float64"}
    assert y_loud.dtype == "float64"


def test_seeded_generators_do_not_change_the_global_one():
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - the global state is tested
    make_rcl(n=10, random_state=0)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("argument", "value", "error"),
    [
        ("n", 0, ValueError),
        ("n", -3, ValueError),
        ("n", 2.5, TypeError),
        ("n", True, TypeError),
        ("n", "10", TypeError),
        ("noise", -0.25, ValueError),
        ("noise", float("nan"), ValueError),
        ("noise", float("inf"), ValueError),
        ("noise", "loud", TypeError),
        ("noise", True, TypeError),
    ],
)
def test_invalid_arguments_are_refused(make, argument, value, error):
    with pytest.raises(error) as caught:
        make(**{argument: value})
    assert argument in str(caught.value)
    assert str(value) in str(caught.value)


@pytest.mark.parametrize("truth", [tf_truth, rcl_truth, wsb_truth])
def test_error_for_a_wrong_shape_names_the_columns(truth):
    with pytest.raises(ValueError, match=r"with the columns .*, not shape \(3, 5\)"):
        truth(np.ones((3, 5)))
    with pytest.raises(ValueError, match=r"shape \(6,\)"):
        truth(np.ones(6))


@needs_files
def test_the_files_leave_the_noise_that_was_found():
    X, y = load("RCL")
    assert (y - rcl_truth(X)).std() == pytest.approx(0.00997, abs=1e-5)
    assert (y - rcl_truth(X, as_printed=True)).std() == pytest.approx(0.18, abs=0.002)
    X, y = load("WSB")
    assert (y - wsb_truth(X)).std() == pytest.approx(0.0095, abs=5e-5)


@needs_files
@pytest.mark.parametrize(("key", "make"), [("RCL", make_rcl), ("WSB", make_wsb)])
def test_generated_sets_are_similar_to_the_files(key, make):
    X_file, y_file = load(key)
    X, y = make(n=len(y_file), random_state=0)
    assert list(X.columns) == list(X_file.columns)
    assert y.name == y_file.name
    assert y.std() == pytest.approx(y_file.std(), rel=0.15)
