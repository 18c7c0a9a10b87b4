"""Standard scaling beside scikit-learn's, and merging of equal rows beside repetitions."""

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from twinned.rows.scaling import StandardScaling, merge_equal_rows


@pytest.mark.parametrize("unit", [1e-100, 1.0, 1e100])
def test_scaling_is_that_of_scikit_learn(unit, rng):
    values, weight = rng.normal(3.0, 2.0, (50, 4)), rng.randint(1, 4, 50).astype(float)
    values[:, 2] = 0.1 + 0.2  # whose mean is rounded
    reference = StandardScaler().fit(values, sample_weight=weight)
    scaling = StandardScaling.fit(values * unit, weight)
    np.testing.assert_array_equal(scaling.varying, [True, True, False, True])
    np.testing.assert_allclose(scaling.center, reference.mean_ * unit)
    np.testing.assert_allclose(
        scaling.transform(values * unit), reference.transform(values), atol=1e-12
    )


def test_missing_values_count_as_the_mean(rng):
    values = rng.normal(size=(30, 2))
    values[:5, 0] = np.nan
    filled = np.where(np.isnan(values), np.nanmean(values, axis=0), values)
    scaling = StandardScaling.fit(values)
    np.testing.assert_allclose(scaling.fill(values), filled)
    np.testing.assert_allclose(scaling.scale, filled.std(axis=0))
    expected = StandardScaling.fit(filled).transform(filled)
    np.testing.assert_allclose(scaling.transform(values), expected, atol=1e-12)


def test_merged_rows_have_the_weight_of_all_that_are_equal(rng):
    X, y = rng.randint(0, 3, (80, 2)).astype(float), rng.randint(0, 2, (80, 1)).astype(float)
    X[X == 2] = np.nan
    weight = rng.randint(0, 3, 80).astype(float)
    rows, sums = merge_equal_rows(X, y, weight)
    both = np.nan_to_num(np.column_stack([X, y]), nan=-1.0)
    assert len(rows) == len(np.unique(both[weight > 0], axis=0))
    for row, total in zip(rows, sums, strict=True):
        assert total == weight[(both == both[row]).all(axis=1)].sum()
