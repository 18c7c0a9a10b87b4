"""A twin as the template of a C header reads it: anchors, and a score of pair features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from twinned._compat import unwrap_search
from twinned.export.model_parts import anchor_shares, refuse
from twinned.fitted.twin import FittedTwin
from twinned.models.sklearn import SklearnDifferenceModel
from twinned.models.trees.reader import FLOAT32, TreeEnsemble, inclusive_threshold, read_trees
from twinned.pairing.pairs import PairColumn
from twinned.rows.schema import Floats, TableSchema

# in place of a code: the column is the feature itself, or 1 where its value is missing
_VALUE, _IS_MISSING = -1, -2
_LEAF = 0xFFFF  # in place of a column


@dataclass(frozen=True, eq=False)
class ColumnEncoding:
    """The columns that a model computes from the features of a row.

    A column is a feature, or 1 where a categorical feature has a certain code or a numeric one is
    missing and 0 elsewhere.

    Parameters
    ----------
    feature, code : ndarray of shape (n_columns,)
        The feature of each column, and the code it indicates; −1 for its value, −2 for whether it
        is missing.
    """

    feature: NDArray[np.intp]
    code: NDArray[np.intp]

    @classmethod
    def of_schema(cls, schema: TableSchema) -> ColumnEncoding:
        """The columns of `Rows`: numeric features, indicators, and codes of categories."""
        columns = [(j, _VALUE) for j in schema.numeric]
        columns += [(j, c) for j in schema.categorical for c in range(schema.n_indicators[j])]
        columns += [(j, _IS_MISSING) for j in schema.marked]
        columns += [(j, _VALUE) for j in schema.categorical]
        feature, code = np.array(columns, dtype=np.intp).reshape(-1, 2).T
        return cls(feature, code)

    def __len__(self) -> int:
        return len(self.feature)

    @property
    def has_codes(self) -> bool:
        """Whether a column is not simply a feature."""
        return bool((self.code != _VALUE).any())


# --- the score of pair features ------------------------------------------------------------------


class TreeScore(NamedTuple):
    """A sum of trees, in one array of nodes; the left child of a node is the next one.

    A value goes left where it is at most the threshold. `column` is twice the column of a node,
    plus 1 where a missing value goes left. At a leaf it is 65535, and `threshold` the value.
    """

    column: Floats
    threshold: Floats
    right: Floats  # distance to the right child
    roots: list[int]
    offset: float

    @classmethod
    def of_ensemble(cls, ensemble: TreeEnsemble, unit: float) -> TreeScore:
        """The trees of a single output, with leaf values multiplied by `unit`."""
        check_single_output(len(ensemble.offset))
        if ensemble.n_features >= _LEAF // 2:
            refuse(f"pairs have more than {_LEAF // 2} columns", "use fewer features")
        nodes: list[list[float]] = []  # column, threshold, right
        roots = []
        for tree in ensemble.trees:
            roots.append(len(nodes))
            thresholds = inclusive_threshold(np.asarray(tree.threshold), FLOAT32, ensemble.strict)
            stack = [(0, -1)]  # the node, and the parent whose right child it is
            while stack:
                node, parent = stack.pop()
                if parent >= 0:
                    nodes[parent][2] = len(nodes) - parent
                if tree.left[node] < 0:
                    nodes.append([_LEAF, float(tree.value[node, 0]) * tree.scale * unit, 0])
                    continue
                stack += [(tree.right[node], len(nodes)), (tree.left[node], -1)]
                code = 2 * int(tree.feature[node]) + bool(tree.missing_left[node])
                nodes.append([code, thresholds[node], 0])
        column, threshold, right = np.array(nodes).T
        return cls(column, threshold, right, roots, float(ensemble.offset[0] * unit))


def check_single_output(n_outputs: int) -> None:
    """Refuse models of several outputs."""
    if n_outputs != 1:
        refuse(f"y has {n_outputs} outputs, and C code a single one", "export one for each")


def _read_score(estimator: BaseEstimator, unit: float) -> TreeScore:
    """The score of a fitted base estimator, multiplied by `unit`."""
    estimator = unwrap_search(estimator)
    if (trees := read_trees(estimator)) is None:
        reason = f"C code supports trees, not estimator={type(estimator).__name__}"
        return refuse(reason, "use to_onnx, or the default base (twinned fit --model twin)")
    return TreeScore.of_ensemble(trees, unit)


@dataclass(frozen=True, eq=False)
class Core:
    """A twin as a list of weighted estimates of y, one or two for each anchor.

    A prediction is `center` and the weighted mean of the estimates, before residuals are added.

    Parameters
    ----------
    columns : ColumnEncoding
        The columns that are computed from the features of a row.
    anchors : ndarray of shape (n_anchors, n_features)
        The features of the anchors, as given.
    anchor_estimates : ndarray of shape (n_anchors,)
        Known values of the anchors, minus `center`.
    anchor_weights : ndarray of shape (n_anchors,)
        The weights of their estimates.
    center : float
        The value of y that an estimate of 0 stands for.
    role, source_column : ndarray of shape (n_pair_columns,)
        The role of each pair column (`PairColumn`), and the column of a row it is made of.
    score : TreeScore
        The predicted difference, in units of y.
    symmetric : bool
        Whether both orders of a pair are evaluated.
    """

    columns: ColumnEncoding
    anchors: Floats
    anchor_estimates: Floats
    anchor_weights: Floats
    center: float
    role: NDArray[np.int64]
    source_column: NDArray[np.int64]
    score: TreeScore
    symmetric: bool

    @classmethod
    def of_twin(cls, fitted: FittedTwin) -> Core:
        """The pairs of a twin, and its anchors."""
        model, anchors = fitted.model, fitted.anchors
        assert isinstance(model, SklearnDifferenceModel)
        role, source_column = model.features.layout(anchors.rows)
        known_y, shares = anchors.outputs[:, 0], anchor_shares(fitted)
        center = float(shares @ known_y)  # float32 represents deviations from the mean
        return cls(
            columns=ColumnEncoding.of_schema(anchors.schema),
            anchors=anchors.matrix,
            anchor_estimates=known_y - center,
            anchor_weights=shares / len(model.member_weights),
            center=center,
            role=role,
            source_column=source_column,
            score=_read_score(model.estimator, model.unit),
            symmetric=model.symmetric,
        )

    @property
    def ram_bytes(self) -> int:
        """The bytes of the arrays on the stack while a row is predicted."""
        return 4 * (2 * len(self.columns) + len(self.role))

    @property
    def role_ends(self) -> list[tuple[str, int]]:
        """Roles of pair columns, which are in this order, and the end of the range of each."""
        assert (np.diff(self.role) >= 0).all()
        used = [role for role in PairColumn if (self.role == role).any()]
        return [(role.name, int((self.role <= role).sum())) for role in used]
