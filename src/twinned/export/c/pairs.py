"""Trees and linear models over pair features, as C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from twinned._compat import unwrap_search
from twinned.export.c.core import ColumnEncoding, Core, Singles
from twinned.export.model_parts import read_linear, read_scaler
from twinned.fitted.twin import FittedTwin
from twinned.models.sklearn import SklearnDifferenceModel
from twinned.models.trees.reader import FLOAT32, TreeEnsemble, inclusive_threshold, read_trees
from twinned.pairing.pairs import PairColumn
from twinned.rows.schema import Floats, TableSchema

_LEAF = 0xFFFF  # in place of a column


class LinearScore(NamedTuple):
    """A linear function of the pair columns."""

    coefficients: Singles  # (column,)
    intercept: np.float32

    @classmethod
    def of_steps(cls, steps: list[BaseEstimator], unit: float) -> LinearScore | None:
        """A linear model of the columns before its scalers; None for other estimators."""
        linear, operations = read_linear(steps[-1]), [read_scaler(step) for step in steps[:-1]]
        if linear is None or None in operations:
            return None
        check_single_output(len(linear[0]))
        coefficients, intercept = linear[0][0], float(linear[1][0])
        for operator, values in reversed([step for steps in operations for step in steps or []]):
            if operator in ("Mul", "Div"):
                coefficients = coefficients * (values if operator == "Mul" else 1.0 / values)
            else:
                intercept += float(values @ coefficients) * (1 if operator == "Add" else -1)
        return cls((coefficients * unit).astype(np.float32), np.float32(intercept * unit))

    def evaluate(self, pairs: Singles) -> Singles:
        """(pair, column) → (pair,)."""
        return pairs @ self.coefficients + self.intercept


class TreeScore(NamedTuple):
    """A sum of trees, in one array of nodes; the left child of a node is the next one.

    A value goes left where it is at most the threshold. At a leaf, `column` is 65535 and
    `threshold` its value.
    """

    column: NDArray[np.uint16]
    missing_left: NDArray[np.bool_]
    threshold: Singles
    right: NDArray[np.uint32]  # distance to the right child
    roots: NDArray[np.uint32]
    offset: np.float32

    @classmethod
    def of_ensemble(cls, ensemble: TreeEnsemble, unit: float) -> TreeScore:
        """The trees of a single output, with leaf values multiplied by `unit`."""
        check_single_output(len(ensemble.offset))
        if ensemble.n_features >= _LEAF // 2:
            raise ValueError(f"C export supports {_LEAF // 2} pair columns at most.")
        nodes: list[list[float]] = []  # column, whether missing values go left, threshold, right
        roots = []
        for tree in ensemble.trees:
            roots.append(len(nodes))
            thresholds = inclusive_threshold(np.asarray(tree.threshold), FLOAT32, ensemble.strict)
            stack = [(0, -1)]  # the node, and the parent whose right child it is
            while stack:
                node, parent = stack.pop()
                if parent >= 0:
                    nodes[parent][3] = len(nodes) - parent
                if tree.left[node] < 0:
                    nodes.append([_LEAF, 0, float(tree.value[node, 0]) * tree.scale * unit, 0])
                    continue
                stack += [(tree.right[node], len(nodes)), (tree.left[node], -1)]
                split = tree.feature[node], tree.missing_left[node], thresholds[node]
                nodes.append([*split, 0])
        column, missing_left, threshold, right = zip(*nodes, strict=True)
        return cls(
            np.array(column, dtype=np.uint16),
            np.array(missing_left, dtype=bool),
            np.array(threshold, dtype=np.float32),
            np.array(right, dtype=np.uint32),
            np.array(roots, dtype=np.uint32),
            np.float32(ensemble.offset[0] * unit),
        )

    def evaluate(self, pairs: Singles) -> Singles:
        """(pair, column) → (pair,)."""
        total = np.full(len(pairs), self.offset, dtype=np.float32)
        rows = np.arange(len(pairs))
        for root in self.roots:
            node = np.full(len(pairs), root, dtype=np.int64)
            while (inner := self.column[node] != _LEAF).any():
                value = pairs[rows, np.where(inner, self.column[node], 0)]
                left = value <= self.threshold[node]
                left |= self.missing_left[node] & np.isnan(value)
                step = np.where(left, 1, self.right[node].astype(np.int64))
                node += np.where(inner, step, 0)
            total += self.threshold[node]
        return total

    @property
    def packed_column(self) -> NDArray[np.uint16]:
        """Twice the column of a node, plus 1 where a missing value goes left; 65535 at a leaf."""
        packed = 2 * self.column + self.missing_left.astype(np.uint16)
        return np.where(self.column == _LEAF, self.column, packed)


def check_single_output(n_outputs: int) -> None:
    """Refuse models of several outputs."""
    if n_outputs != 1:
        raise ValueError(
            f"C export needs a single output, but y has {n_outputs}; export one model for each."
        )


def _read_score(estimator: BaseEstimator, unit: float) -> LinearScore | TreeScore:
    """The trees or the coefficients of a regressor."""
    estimator = unwrap_search(estimator)
    if (trees := read_trees(estimator)) is not None:
        return TreeScore.of_ensemble(trees, unit)
    steps = [step for _, step in estimator.steps] if type(estimator) is Pipeline else [estimator]
    if (linear := LinearScore.of_steps(steps, unit)) is not None:
        return linear
    raise TypeError(
        f"C export supports trees, their ensembles and linear models, also after scalers, not "
        f"{type(estimator).__name__}; use to_onnx, or a single twin (twinned fit --model twin)."
    )


@dataclass(frozen=True, eq=False)
class PairCore(Core):
    """A score of pair features with anchors; without anchors, of the columns of the row alone.

    Parameters
    ----------
    role, source_column : ndarray of shape (n_pair_columns,)
        The role of each pair column (`PairColumn`), and the column of a row it is made of.
    score : LinearScore or TreeScore
        The predicted difference, in units of y.
    symmetric : bool
        Whether both orders of a pair are evaluated.
    """

    role: NDArray[np.int64]
    source_column: NDArray[np.int64]
    score: LinearScore | TreeScore
    symmetric: bool

    @classmethod
    def of_twin(cls, state: FittedTwin, weights: Floats) -> PairCore:
        """The pairs of a twin whose anchors have these weights, which sum to one."""
        model = state.model
        assert isinstance(model, SklearnDifferenceModel)
        if callable(model.features.kind):
            raise ValueError("C export does not support a callable pair_features; use a named one.")
        role, column = model.features.layout(state.anchors.rows)
        known_y = state.anchors.targets[:, 0]
        center = float(weights @ known_y)  # float32 represents deviations from the mean
        return cls(
            ColumnEncoding.of_schema(state.anchors.schema),
            state.anchors.X.astype(np.float32),
            (known_y - center).astype(np.float32),
            weights,
            center,
            1.0,
            role=role,
            source_column=column,
            score=_read_score(model.estimator, model.unit),
            symmetric=model.symmetric,
        )

    @classmethod
    def of_regressor(cls, regressor: BaseEstimator) -> PairCore:
        """A regressor of y itself: pairs without the second row, and one anchor of 0."""
        n_features = int(regressor.n_features_in_)
        return cls(
            ColumnEncoding.of_schema(TableSchema.all_numeric(n_features)),
            np.zeros((1, n_features), dtype=np.float32),
            np.zeros(1, dtype=np.float32),
            np.ones(1),
            0.0,
            1.0,
            role=np.full(n_features, PairColumn.FIRST, dtype=np.int64),
            source_column=np.arange(n_features),
            score=_read_score(regressor, 1.0),
            symmetric=False,
        )

    @property
    def kind(self) -> str:
        return "linear" if isinstance(self.score, LinearScore) else "trees"

    @property
    def n_orders(self) -> int:
        return 2 if self.symmetric else 1

    @property
    def weights(self) -> Floats:
        return np.repeat(self.anchor_weights, self.n_orders) / self.n_orders

    @property
    def ram_bytes(self) -> int:
        return 4 * (2 * len(self.columns) + len(self.role))

    def estimates(self, X: Singles) -> Singles:
        """(row, estimate): of each anchor, in both orders one after the other where symmetric."""
        assert self.anchors is not None
        first, second = self.columns.encode(X)[:, None], self.columns.encode(self.anchors)[None]
        forward = self.anchor_estimates + self._differences(first, second)
        if not self.symmetric:
            return forward
        backward = self.anchor_estimates - self._differences(second, first)
        return np.stack([forward, backward], axis=-1).reshape(len(X), -1)

    def _differences(self, first: Singles, second: Singles) -> Singles:
        """(row, anchor) of sides that broadcast."""
        a, b = (side[..., self.source_column] for side in (first, second))
        a, b = np.broadcast_arrays(a, b)
        differs = np.where(np.isnan(a) | np.isnan(b), np.nan, a != b).astype(np.float32)
        roles = (PairColumn.FIRST, PairColumn.SECOND, PairColumn.DIFFERENCE, PairColumn.MISMATCH)
        pairs = np.select([self.role == role for role in roles], [a, b, a - b, differs])
        return self.score.evaluate(pairs.reshape(-1, len(self.role))).reshape(a.shape[:2])

    @property
    def role_ends(self) -> list[tuple[str, int]]:
        """Roles of pair columns, which are in this order, and the end of the range of each."""
        assert (np.diff(self.role) >= 0).all()
        used = [role for role in PairColumn if (self.role == role).any()]
        return [(role.name, int((self.role <= role).sum())) for role in used]
