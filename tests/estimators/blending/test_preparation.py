"""Features of the members of a blend: imputation, indicators, scaling."""

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from twinned.estimators.blending.model import FeaturePreparation
from twinned.rows.schema import TableSchema

SCHEMA = TableSchema(["numeric", "categorical", "numeric"], [[], ["a", "b", "c"], []], [0, 3, 0])


@pytest.fixture
def matrix(rng):
    matrix = np.column_stack([rng.normal(3, 2, 30), rng.randint(0, 3, 30), rng.normal(size=30)])
    matrix[[2, 5], 2] = np.nan
    matrix[7, 1] = np.nan
    return matrix


def test_encoded_features_are_unchanged(matrix):
    preparation = FeaturePreparation.fit("encoded", SCHEMA, matrix)
    np.testing.assert_array_equal(preparation.transform(matrix), matrix)


def test_complete_features(matrix):
    complete = FeaturePreparation.fit("complete", SCHEMA, matrix).transform(matrix)
    assert complete.shape == (30, 4)
    assert complete[2, 2] == complete[5, 2] == np.nanmedian(matrix[:, 2])
    assert complete[7, 1] == 3  # a category of its own
    np.testing.assert_array_equal(complete[:, 3], np.isnan(matrix[:, 2]))


def test_dense_features_equal_those_of_scikit_learn(matrix):
    dense = FeaturePreparation.fit("dense", SCHEMA, matrix)
    columns = ColumnTransformer(
        [
            ("numeric", SimpleImputer(strategy="median", add_indicator=True), [0, 2]),
            ("kind", OneHotEncoder(sparse_output=False, handle_unknown="ignore"), [1]),
        ]
    ).fit(matrix)
    scaler = StandardScaler().fit(columns.transform(matrix))
    for rows in (matrix, np.array([[1.0, np.nan, np.nan], [2.0, 9.0, 0.5]])):
        expected = scaler.transform(columns.transform(rows))
        np.testing.assert_allclose(dense.transform(rows), expected, atol=1e-12)


def test_missing_values_in_queries_only(matrix):
    known = matrix[~np.isnan(matrix).any(axis=1)]
    for kind in ("complete", "dense"):
        preparation = FeaturePreparation.fit(kind, SCHEMA, known)
        filled = preparation.transform(np.full((2, 3), np.nan))
        assert np.isfinite(filled).all()
        assert filled.shape[1] == preparation.transform(known).shape[1]


def test_feature_without_values_and_constant_feature():
    matrix = np.column_stack([np.full(5, np.nan), np.full(5, 7.0), np.arange(5.0)])
    dense = FeaturePreparation.fit("dense", TableSchema.all_numeric(3), matrix)
    transformed = dense.transform(matrix)
    np.testing.assert_array_equal(transformed[:, :2], 0)
    assert transformed[:, 2].std() == pytest.approx(1)


@pytest.mark.parametrize("kind", ["complete", "dense"])
def test_new_categories_do_not_depend_on_other_rows(matrix, kind):
    preparation = FeaturePreparation.fit(kind, SCHEMA, matrix)
    new = np.tile(matrix[:1], (3, 1))
    new[:, 1] = [3.0, 4.0, np.nan]  # two new categories and a missing one
    first, second, missing = preparation.transform(new)
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, missing)


@pytest.mark.parametrize("kind", ["encoded", "complete", "dense"])
def test_feature_without_known_values(matrix, kind):
    matrix[:, 0] = np.nan
    features = FeaturePreparation.fit(kind, SCHEMA, matrix).transform(matrix)
    assert not np.isnan(features[:, 0]).any()
