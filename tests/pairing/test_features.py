"""Pair features of selected features."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from twinned.pairing.differences import PAIR_FEATURES, PairFeatures
from twinned.rows.schema import TableSchema

SCHEMA = TableSchema(
    ["numeric", "categorical", "numeric", "categorical", "ordinal"],
    [[], ["a", "b"], [], ["x", "y", "z"], ["low", "high"]],
    [0, 2, 0, 3, 0],
)


@given(
    selected=st.sets(st.integers(0, 4), min_size=1),
    kind=st.sampled_from(PAIR_FEATURES),
    seed=st.integers(0, 99),
)
def test_selection_is_a_smaller_table(selected, kind, seed):
    rng = np.random.RandomState(seed)
    table = rng.randint(2, size=(6, 5)).astype(float)
    chosen = np.array(sorted(selected))
    features = PairFeatures(kind, SCHEMA, np.dtype(float), chosen)
    smaller = TableSchema(
        [SCHEMA.kinds[j] for j in chosen],
        [SCHEMA.categories[j] for j in chosen],
        [SCHEMA.n_indicators[j] for j in chosen],
    )
    expected = PairFeatures(kind, smaller, np.dtype(float))
    rows, smaller_rows = SCHEMA.to_rows(table), smaller.to_rows(table[:, chosen])
    pairs = features.build(rows.take(np.s_[:, None]), rows.take(None))
    assert features.width == expected.width == pairs.shape[-1]
    np.testing.assert_array_equal(
        pairs, expected.build(smaller_rows.take(np.s_[:, None]), smaller_rows.take(None))
    )
    # the layout names columns of the whole table, and rows of their own for the smaller one
    role, source = features.layout(rows)
    smaller_role, smaller_source = expected.layout(smaller_rows)
    np.testing.assert_array_equal(role, smaller_role)
    all_columns = np.concatenate([*rows], axis=1)
    smaller_columns = np.concatenate([*smaller_rows], axis=1)
    np.testing.assert_array_equal(all_columns[:, source], smaller_columns[:, smaller_source])
