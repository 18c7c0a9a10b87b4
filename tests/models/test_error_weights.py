"""Known errors of measurement: the remaining part of errors, and weights of rows."""

import numpy as np
import pytest

from twinned import TwinRegressor
from twinned.models.gaussian_process import fit_gaussian_process
from twinned.models.measurement_errors import (
    expected_sizes,
    remaining_std,
    remaining_variances,
    weigh_by_error,
)
from twinned.rows.training import validate_training_rows


def make_rows(n, seed=0, unit=1.0, **options):
    rng = np.random.RandomState(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    y_std = rng.choice([0.0, 0.1, 1.0], size=n)
    y = np.sin(2 * X[:, 0]) + X[:, 1] + y_std * rng.normal(size=n)
    options = {"y_std": unit * y_std, **options}
    return validate_training_rows(TwinRegressor(), X, unit * y, multi_output=False, **options)


def matern(first, second):
    root = np.sqrt(5 * ((first[:, None] - second) ** 2).sum(axis=2))
    return (1 + root + root**2 / 3) * np.exp(-root)


def test_remaining_std_is_the_mean_given_the_errors(rng):
    y_std, scale = rng.uniform(0, 2, 40), rng.uniform(0.5, 1.5, 40)
    errors = np.hypot(0.7 * scale, y_std) * rng.normal(size=40)
    typical = np.sqrt(np.mean(scale**2))
    steps = np.exp(np.linspace(np.log(0.01), np.log(10), 4000))
    density = np.exp(-0.5 * (np.log(steps * typical / 0.5) / 0.3) ** 2)
    for error, known, own in zip(errors, y_std, scale, strict=True):
        std = np.hypot(steps * own, known)
        density *= np.exp(-0.5 * (error / std) ** 2) / std
    expected = np.average(steps, weights=density)
    assert remaining_std(errors, y_std, 0.5, scale) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("true", [0.2, 1.0, 5.0])
def test_remaining_std_and_sizes_of_many_rows(rng, true):
    y_std = rng.choice([0.0, 1.0, 3.0], 20_000)
    remaining = true * rng.normal(size=len(y_std))
    errors = remaining + y_std * rng.normal(size=len(y_std))
    assert remaining_std(errors, y_std, expected=1.0) == pytest.approx(true, rel=0.03)
    sizes = expected_sizes(errors, y_std, expected=1.0)
    np.testing.assert_allclose(sizes[y_std == 0], np.abs(errors[y_std == 0]))
    assert np.sqrt(np.mean(sizes**2)) == pytest.approx(true, rel=0.03)


def test_errors_that_the_measurements_explain_leave_what_is_expected():
    assert remaining_std(np.zeros(3), np.full(3, 100.0), 0.5) == pytest.approx(0.5, rel=0.1)


def test_the_expected_variance_is_that_of_a_process_without_each_row():
    rows = make_rows(25)
    remaining, noise = remaining_variances(rows.matrix, rows.y, rows.y_std)
    own = 1 / (noise + rows.y_std**2)
    own /= own.mean()
    process = fit_gaussian_process(rows.matrix, rows.y, sample_weight=own, random_state=0)
    scaled, variances = rows.matrix / process.length_scales, []
    for row in range(25):
        others = np.arange(25) != row
        covariance = matern(scaled[others], scaled[others])
        covariance += np.diag(process.noise / own[others])
        towards = matern(scaled[[row]], scaled[others])[0]
        variances.append(1 - towards @ np.linalg.solve(covariance, towards))
    expected = np.mean(variances) * process.amplitude * process.scale[0] ** 2
    assert remaining == pytest.approx(expected + noise, rel=0.05)  # from another start


def test_noise_is_told_from_known_errors(rng):
    X, y_std = rng.uniform(-2, 2, size=(300, 1)), rng.choice([0.1, 1.0], 300)
    y = np.sin(X[:, 0]) + np.hypot(0.3, y_std) * rng.normal(size=300)
    _, noise = remaining_variances(X, y, y_std)
    assert 0.02 < noise < 0.3


def test_weights_are_the_inverse_variances():
    rows = weigh_by_error(make_rows(80))
    remaining, noise = rows.variances
    assert 0.01 < np.sqrt(remaining) < 0.5  # that of the process, far less than the large errors
    assert noise <= remaining
    for weight, variance in ((rows.weight, remaining), (rows.process_weight, noise)):
        product = weight * (variance + rows.y_std**2)
        np.testing.assert_allclose(product, product[0])


def test_a_process_has_the_known_noise_of_each_row():
    rows = weigh_by_error(make_rows(60))
    process = fit_gaussian_process(rows.matrix, rows.y, sample_weight=rows.process_weight)
    scaled, queries = rows.matrix / process.length_scales, np.array([[0.3, 0.2], [1.0, -1.0]])
    # the same noise in the covariance, as a variance besides the known ones
    noise = rows.variances[1] + rows.y_std**2
    level = process.noise / rows.process_weight[0] * rows.process_weight.mean() / noise[0]
    covariance = matern(scaled, scaled) + np.diag(level * noise)
    solution = np.linalg.solve(covariance, rows.y - process.mean)
    expected = process.mean + matern(queries / process.length_scales, scaled) @ solution
    np.testing.assert_allclose(process.predict(queries), expected, rtol=1e-6)


def test_units_and_sample_weights():
    plain, scaled = weigh_by_error(make_rows(60)), weigh_by_error(make_rows(60, unit=1000.0))
    np.testing.assert_allclose(scaled.weight, plain.weight, rtol=1e-3)
    sample_weight = np.linspace(0.0, 2.0, 60)
    weighted = weigh_by_error(make_rows(60, sample_weight=sample_weight))
    product = weighted.weight * (weighted.variances[0] + weighted.y_std**2)
    np.testing.assert_allclose(product / product[-1], sample_weight / 2.0)


def test_equal_errors_change_no_weights():
    rows = make_rows(20, y_std=np.full(20, 0.5))
    assert weigh_by_error(rows) is rows
    assert rows.process_weight is None


@pytest.mark.parametrize(
    ("y_std", "message"),
    [
        ([0.1, -0.2, 0.1], r"y_std\[1\] = -0.2 is negative"),
        ([0.1, 0.2], r"y_std has the shape \(2,\), but X has 3 rows"),
        ([0.1, np.nan, 0.1], "y_std contains NaN"),
        ([0.1, np.inf, 0.1], "y_std contains infinity"),
    ],
)
def test_bad_errors_are_refused(y_std, message):
    with pytest.raises(ValueError, match=message):
        make_rows(3, y_std=y_std)


def test_several_outputs_are_refused(rng):
    X = rng.normal(size=(5, 1))
    with pytest.raises(ValueError, match="y_std needs a single output, not 2"):
        TwinRegressor().fit(X, rng.normal(size=(5, 2)), y_std=np.ones(5))
