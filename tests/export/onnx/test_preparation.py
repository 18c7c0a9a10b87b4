import numpy as np
import pytest

from twinned.estimators.blending.model import FeaturePreparation
from twinned.export.onnx.inputs import add_preparation, encode_matrix, split_rows
from twinned.rows.schema import TableSchema

SCHEMA = TableSchema(
    ["numeric", "categorical", "numeric", "numeric", "categorical"],
    [[], ["a", "b", "c"], [], [], [7, 8]],
    [0, 3, 0, 0, 2],
)


def make_rows(n, rng, n_codes):
    """Encoded rows with missing values; the fourth feature has no known value."""
    rows = rng.normal(size=(n, 5))
    for j, n_own in ((1, 3), (4, 2)):
        rows[:, j] = rng.randint(0, n_own + n_codes, n)
    rows[rng.rand(n, 5) < 0.2] = np.nan
    return rows


@pytest.mark.parametrize("kind", ["encoded", "complete", "dense"])
def test_features_of_members_are_the_same(evaluate, rng, kind):
    training = make_rows(50, rng, n_codes=0)
    training[:, 3] = np.nan
    preparation = FeaturePreparation.fit(kind, SCHEMA, training)
    new = make_rows(80, rng, n_codes=1)  # with new categories
    found = evaluate(lambda X: add_preparation(preparation, X), new)
    np.testing.assert_array_equal(found, preparation.transform(new))


def test_rows_of_a_schema_are_the_same(evaluate, rng):
    new = make_rows(40, rng, n_codes=1)
    found = evaluate(lambda X: split_rows(SCHEMA, X), new)
    np.testing.assert_array_equal(found, np.concatenate(list(SCHEMA.to_rows(new)), axis=1))


def test_categories_of_numbers_are_encoded(evaluate):
    schema = TableSchema(["categorical", "ordinal"], [[7, 8], [0.5, 3.0]], [2, 0])
    rows = [[7, 3.0], [8, 0.5], [9, 0.5], [np.nan, np.nan], [7, 4.0]]
    found = evaluate(lambda X: encode_matrix(schema, X), rows)
    expected = [[0, 1], [1, 0], [2, 0], [np.nan, np.nan], [0, np.nan]]
    np.testing.assert_array_equal(found, expected)
