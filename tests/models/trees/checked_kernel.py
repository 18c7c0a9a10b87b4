"""The kernel under bounds checking; run by `test_compilation` in a new process.

Prints "equal" where predictions are right, then "IndexError" for each access beyond an array.
"""

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.multioutput import MultiOutputRegressor

from twinned.models.sklearn import SklearnDifferenceModel
from twinned.models.trees.anchor_masks import MASK_WORDS, MAX_ANCHORS
from twinned.pairing.differences import PairFeatures
from twinned.rows.schema import TableSchema


def check_predictions():
    """All kinds of columns, several outputs and chunks of anchors; then a damaged tree."""
    rng = np.random.RandomState(0)
    n_anchors, n_queries = MAX_ANCHORS + 50, 7
    schema = TableSchema(["numeric", "numeric", "categorical"], [[], [], list("abcd")], [0, 0, 4])
    uneven = np.exp(4 * rng.normal(size=n_anchors))
    matrix = np.column_stack([uneven, *rng.randint(0, 4, (2, n_anchors))])
    matrix[rng.uniform(size=matrix.shape) < 0.1] = np.nan
    anchors, queries = schema.to_rows(matrix), schema.to_rows(matrix[-n_queries:])
    features = PairFeatures("concat+difference", schema, np.dtype(np.float64))
    first, second = rng.randint(0, n_anchors, (2, 2000))
    known = np.tanh(np.nan_to_num(matrix)).sum(axis=1)
    target = known[first] - known[second]
    base = HistGradientBoostingRegressor(max_iter=8, min_samples_leaf=5)
    estimator = MultiOutputRegressor(base).fit(
        features.build(anchors.take(first), anchors.take(second)),
        np.column_stack([target, target**2]),
    )
    model = SklearnDifferenceModel(estimator, features, 1.0, True, 3 * 10**8)
    trees = model.trees_at(anchors, np.zeros(n_anchors))
    one, many = rng.randint(0, n_anchors, (n_queries, 1)), np.arange(7 * 40).reshape(7, 40)
    for indices in (one, many, None):
        across = anchors.take(None) if indices is None else anchors.take(indices)
        forward = features.build(queries.take(np.s_[:, None]), across)
        backward = features.build(across, queries.take(np.s_[:, None]))
        found = trees.differences(queries, indices, n_jobs=1)
        for member, sign, pairs in zip(found, (1, -1), (forward, backward), strict=True):
            expected = sign * estimator.predict(pairs.reshape(-1, features.width))
            np.testing.assert_allclose(member, expected.reshape(member.shape), atol=1e-12)
    mean, _ = trees.moments(queries, None, variance=False, n_jobs=1)
    np.testing.assert_allclose(mean, found.mean(axis=(0, 2)), atol=1e-12)
    print("equal")
    trees.packed[0].nodes[0, 1] = len(trees.packed[0].nodes) + 5  # the children of the first root
    print_error(lambda: trees.differences(queries, None, n_jobs=1))
    trees.packed[0].inner_nodes[0, 1] = 10**6
    print_error(lambda: trees.moments(queries, None, variance=False, n_jobs=1))


def check_intrinsics():
    """Each intrinsic that accesses memory, before and after the array."""
    from twinned.models.trees.compilation import (
        compiled,
        copy_mask,
        nonzero_words,
        prefetch,
        read,
        split_half_mask,
        split_mask,
        store,
    )

    array = np.zeros((3, MASK_WORDS), dtype=np.uint64)
    for access in (
        lambda masks, i: read(masks, i * MASK_WORDS),
        lambda masks, i: store(masks, i * MASK_WORDS, np.uint64(0)),
        lambda masks, i: prefetch(masks, i * MASK_WORDS),
        lambda masks, i: nonzero_words(masks, i),
        lambda masks, i: copy_mask(masks, 0, masks, i),
        lambda masks, i: copy_mask(masks, i, masks, 0),
        lambda masks, i: split_mask(masks, i, masks, 0, 1, 2),
        lambda masks, i: split_mask(masks, 0, masks, i, 1, 2),
        lambda masks, i: split_mask(masks, 0, masks, 0, i, 1),
        lambda masks, i: split_mask(masks, 0, masks, 0, 1, i),
        lambda masks, i: split_half_mask(masks, i, masks, 0, 1, 2),
        lambda masks, i: split_half_mask(masks, 0, masks, i, 1, 2),
        lambda masks, i: split_half_mask(masks, 0, masks, 0, i, 1),
        lambda masks, i: split_half_mask(masks, 0, masks, 0, 1, i),
    ):
        function = compiled(access)
        for i in range(3):
            function(array, i)
        print_error(function, array, -1)
        print_error(function, array, 3)


def print_error(function, *arguments):
    try:
        function(*arguments)
    except IndexError:
        print("IndexError")
    else:
        print("no error")


if __name__ == "__main__":
    check_predictions()
    check_intrinsics()
