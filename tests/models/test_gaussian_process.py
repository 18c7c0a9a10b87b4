import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from twinned.exceptions import UnsuitableDataError
from twinned.models.gaussian_process import fit_gaussian_process
from twinned.models.marginal_likelihood import MarginalLikelihood
from twinned.rows.neighbors import tanimoto_similarity

SKLEARN_KERNELS = {"rbf": RBF, "matern": lambda lengths: Matern(lengths, nu=2.5)}
pytestmark = pytest.mark.usefixtures("shipped_defaults")
kernels = pytest.mark.parametrize("kernel", ["rbf", "matern"])


@pytest.fixture
def data(rng):
    X = rng.uniform(-1, 1, (60, 3)) * [1.0, 10.0, 0.1] + [0.0, 2000.0, 0.0]
    y = np.sin(3 * X[:, 0]) + 0.2 * (X[:, 1] - 2000) + 0.1 * rng.normal(size=60)
    return X, y


def sklearn_process(process, alpha):
    """scikit-learn's process with the hyperparameters of ours; `alpha` is the noise of the rows."""
    kernel = ConstantKernel(process.amplitude) * SKLEARN_KERNELS[process.kernel](
        process.length_scales
    )
    if np.ndim(alpha) == 0:
        kernel, alpha = kernel + WhiteKernel(alpha), 0.0
    return GaussianProcessRegressor(kernel, alpha=alpha, optimizer=None)


@kernels
def test_likelihood_and_predictions_equal_scikit_learns(kernel, data):
    X, y = data
    process = fit_gaussian_process(X[:50], y[:50], kernel=kernel)
    reference = sklearn_process(process, process.noise * process.amplitude)
    reference.fit(process.X, process.target)
    likelihood = reference.log_marginal_likelihood(reference.kernel_.theta)
    assert process.log_marginal_likelihood_ == pytest.approx(likelihood, abs=1e-8)
    mean, std = process.predict(X, return_std=True)
    expected, expected_std = reference.predict(X, return_std=True)
    np.testing.assert_allclose(mean, expected * process.scale + process.mean, atol=1e-8)
    np.testing.assert_allclose(std, expected_std * process.scale, atol=1e-8)


@kernels
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), n_outputs=st.integers(1, 3))
def test_gradient_equals_finite_differences(kernel, seed, n_outputs):
    rng = np.random.RandomState(seed)
    weight = rng.uniform(0.2, 3.0, 20)
    likelihood = MarginalLikelihood(
        kernel, rng.normal(size=(20, 3)), rng.normal(size=(20, n_outputs)), weight
    )
    point = np.append(rng.normal(size=3), rng.uniform(-4, 1))
    value, gradient = likelihood.negative(point)
    assert value == pytest.approx(-likelihood.solve(point)[0])
    for k in range(4):
        step = 1e-5 * np.eye(4)[k]
        slope = (likelihood.negative(point + step)[0] - likelihood.negative(point - step)[0]) / 2e-5
        assert gradient[k] == pytest.approx(slope, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("direction", ["amplitude", "mean"])
def test_amplitude_and_mean_are_at_their_optimum(direction, data):
    X, y = data
    process = fit_gaussian_process(X, y)
    for factor in (0.9, 1.1):
        reference = sklearn_process(process, process.noise * process.amplitude)
        target = process.target
        if direction == "amplitude":
            theta = reference.kernel.theta.copy()
            theta[[0, -1]] += np.log(factor)
        else:
            theta, target = reference.kernel.theta, target + (factor - 1)
        value = reference.fit(process.X, target).log_marginal_likelihood(theta)
        assert value < process.log_marginal_likelihood_


def test_weights_divide_the_noise(data):
    X, y = data
    weight = np.linspace(0.1, 4.0, len(y))
    process = fit_gaussian_process(X, y, sample_weight=weight)
    noise = process.noise * process.amplitude / process.weight
    reference = sklearn_process(process, noise).fit(process.X, process.target)
    expected = reference.predict(X) * process.scale + process.mean
    np.testing.assert_allclose(process.predict(X), expected, atol=1e-8)


def test_rows_of_weight_zero_are_ignored(data):
    X, y = data
    y = y.copy()
    y[40:] = 1e6
    process = fit_gaussian_process(X, y, sample_weight=np.arange(60) < 40, random_state=0)
    assert len(process.X) == 40
    assert np.abs(process.predict(X)).max() < 10


def test_a_weight_equals_a_repeated_row(data):
    X, y = data
    times = np.random.RandomState(0).randint(0, 4, len(y))
    weighted = fit_gaussian_process(X, y, sample_weight=times, random_state=0)
    repeated = fit_gaussian_process(
        np.repeat(X, times, axis=0), np.repeat(y, times), random_state=0
    )
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))


def test_constant_features_and_targets(data):
    X, y = data
    process = fit_gaussian_process(np.column_stack([np.full(60, 3.7), X]), y)
    assert process.length_scales[0] == np.inf
    other = np.column_stack([np.full(60, -1.0), X])
    np.testing.assert_allclose(process.predict(other), fit_gaussian_process(X, y).predict(X), 1e-3)
    np.testing.assert_allclose(fit_gaussian_process(X, np.full(60, 2.5)).predict(X), 2.5)
    constant = fit_gaussian_process(np.ones((4, 3)), y[:4])
    np.testing.assert_allclose(constant.predict(X), y[:4].mean())


def test_outputs_share_the_hyperparameters(data):
    X, y = data
    both = fit_gaussian_process(X, np.column_stack([y, 5 - 3 * y]), random_state=0)
    single = fit_gaussian_process(X, y, random_state=0)
    # of an irrelevant feature, any large length scale is as good
    slopes, expected = 1 / both.length_scales, 1 / single.length_scales
    np.testing.assert_allclose(slopes, expected, rtol=0.05, atol=1e-3)
    mean, std = both.predict(X, return_std=True)
    np.testing.assert_allclose(mean[:, 1], 5 - 3 * mean[:, 0], atol=1e-8)
    np.testing.assert_allclose(std[:, 1], 3 * std[:, 0])


def test_a_noise_free_function_is_interpolated(rng):
    X = rng.uniform(-1, 1, (120, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1]
    process = fit_gaussian_process(X[:100], y[:100], kernel="rbf")
    assert np.abs(process.predict(X[100:]) - y[100:]).max() < 1e-4


def test_duplicate_rows_do_not_fail(rng):
    X = np.repeat(rng.normal(size=(20, 2)), 3, axis=0)
    process = fit_gaussian_process(X, X[:, 0])
    np.testing.assert_allclose(process.predict(X), X[:, 0], atol=1e-3)


def test_many_rows_use_a_subset(rng):
    X = rng.uniform(-1, 1, (400, 2))
    y = X[:, 0] + 0.01 * rng.normal(size=400)
    process = fit_gaussian_process(X, y, max_rows=300, max_likelihood_rows=100, random_state=3)
    assert process.X.shape == (300, 2)
    assert np.abs(process.predict(X) - X[:, 0]).max() < 0.05
    same = fit_gaussian_process(X, y, max_rows=300, max_likelihood_rows=100, random_state=3)
    np.testing.assert_array_equal(process.dual, same.dual)


def test_a_copy_holds_only_plain_arrays(data):
    X, y = data
    process = fit_gaussian_process(X, y)
    before = process.predict(X, return_std=True)
    assert set(process.__getstate__()) == set(type(process).__dataclass_fields__)
    after = pickle.loads(pickle.dumps(process)).predict(X, return_std=True)
    np.testing.assert_array_equal(before, after)


def test_bad_parameters_are_refused(data):
    X, y = data
    with pytest.raises(ValueError, match="kernel must be one of"):
        fit_gaussian_process(X, y, kernel="linear")
    with pytest.raises(ValueError, match="must be finite"):
        fit_gaussian_process(np.where(X > 2000, np.nan, X), y)


def test_few_steps_on_a_wide_table(monkeypatch):
    rng = np.random.RandomState(0)
    X = rng.normal(size=(200, 40))
    y = 2 * np.sin(X[:, 3]) + X[:, 7] + 0.3 * rng.normal(size=200)
    evaluate, calls = MarginalLikelihood.negative, []

    def counted(self, log_parameters):
        calls.append(len(self.X))
        return evaluate(self, log_parameters)

    monkeypatch.setattr(MarginalLikelihood, "negative", counted)
    process = fit_gaussian_process(X[:150], y[:150], random_state=0)
    assert set(calls) == {150}
    assert len(calls) <= 25
    assert set(np.argsort(process.length_scales)[:2]) == {3, 7}
    assert np.std(process.predict(X[150:]) - y[150:]) < 0.6 * np.std(y[150:])
    calls.clear()
    fit_gaussian_process(X[:150, :10], y[:150], random_state=0)
    assert len(calls) > 50  # several starts


def test_similarity_of_counts_equals_minima_over_maxima(rng):
    first, second = rng.poisson(0.5, (6, 9)).astype(float), rng.poisson(0.5, (5, 9)).astype(float)
    first[0] = second[0] = 0.0
    expected = [
        [np.minimum(a, b).sum() / np.maximum(a, b).sum() if (a + b).any() else 1.0 for b in second]
        for a in first
    ]
    np.testing.assert_allclose(tanimoto_similarity(first, second), expected)


@pytest.mark.parametrize("n_others", [0, 3])
def test_process_of_counts_and_other_features(n_others, rng):
    X = np.column_stack([rng.poisson(1.0, (200, 6)), rng.normal(size=(200, n_others))])
    y = X[:, 0] - X[:, 1] + 2 * np.sin(X[:, 6:].sum(axis=1)) + rng.normal(size=200)
    process = fit_gaussian_process(X[:180], y[:180], n_counts=6)

    def correlation(first, second, share, length):
        similarity = tanimoto_similarity(first[:, :6], second[:, :6])
        if not n_others:
            return similarity
        kernel = Matern(length, nu=2.5)(first[:, 6:], second[:, 6:])
        return share * similarity + (1 - share) * kernel

    share, length = process.count_share, process.length_scales[-1]
    assert share == 1.0 if n_others == 0 else 0.05 < share < 0.95
    covariance = process.amplitude * correlation(process.X, process.X, share, length)
    noise = process.amplitude * process.noise / process.weight
    solution = np.linalg.solve(covariance + np.diag(noise), process.target[:, 0])
    between = process.amplitude * correlation(X[180:], process.X, share, length)
    mean, std = process.predict(X[180:], return_std=True)
    np.testing.assert_allclose(mean, between @ solution * process.scale[0] + process.mean[0])
    explained = between * np.linalg.solve(covariance + np.diag(noise), between.T).T
    variance = process.amplitude * (1 + process.noise) - explained.sum(axis=1)
    np.testing.assert_allclose(std, np.sqrt(variance) * process.scale[0])
    likelihood = MarginalLikelihood("matern", process.X, process.target, process.weight)

    def value(log_noise_step=0.0, share=share, length=length):
        changed = correlation(process.X, process.X, share, length)
        return likelihood.of_correlation(changed, np.log(process.noise) + log_noise_step)[0]

    assert value() == pytest.approx(process.log_marginal_likelihood_)
    others = [value(-0.5), value(0.5)]
    if n_others:
        others += [value(share=share - 0.1), value(share=share + 0.1)]
        others += [value(length=0.7 * length), value(length=1.4 * length)]
    assert value() > max(others)


def test_negative_counts_are_refused():
    with pytest.raises(UnsuitableDataError, match="negative values"):
        fit_gaussian_process(np.array([[1.0], [-1.0]]), np.array([0.0, 1.0]), n_counts=1)
    with pytest.raises(ValueError, match="n_counts=2 exceeds the 1 features"):
        fit_gaussian_process(np.array([[1.0], [-1.0]]), np.array([0.0, 1.0]), n_counts=2)
