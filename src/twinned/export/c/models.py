"""Models as the template of a C header reads them: networks, and scores of pair features."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from twinned._compat import unwrap_search
from twinned.export.model_parts import (
    anchor_shares,
    read_linear,
    read_scaler,
    refuse,
    unpadded_parameters,
)
from twinned.fitted.twin import FittedTwin
from twinned.models.neural.difference_model import NeuralDifferenceModel
from twinned.models.protocol import DifferenceModel
from twinned.models.sklearn import SklearnDifferenceModel
from twinned.models.trees.reader import FLOAT32, TreeEnsemble, inclusive_threshold, read_trees
from twinned.pairing.pairs import PairColumn
from twinned.rows.schema import Floats, Indices, TableSchema

Singles = NDArray[np.float32]
# in place of a code: the column is the feature itself, or 1 where its value is missing
_VALUE, _IS_MISSING = -1, -2
_LEAF = 0xFFFF  # in place of a column


class ColumnScale(NamedTuple):
    """How columns are scaled: (value − mean) · factor, (column,) each.

    The mean is a sum of two floats, so that features far from zero lose no digits. A missing value
    (NaN) is replaced by `fill`, and stays missing in columns that are not scaled.
    """

    mean: Floats
    mean_rest: Floats
    factor: Floats
    fill: Floats


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
    scale : ColumnScale or None
        None where columns are not scaled.
    """

    feature: NDArray[np.intp]
    code: NDArray[np.intp]
    scale: ColumnScale | None = None

    @classmethod
    def of_schema(cls, schema: TableSchema) -> ColumnEncoding:
        """The columns of `Rows`: numeric features, indicators, and codes of categories."""
        columns = [(j, _VALUE) for j in schema.numeric]
        columns += [(j, c) for j in schema.categorical for c in range(schema.n_indicators[j])]
        columns += [(j, _IS_MISSING) for j in schema.marked]
        columns += [(j, _VALUE) for j in schema.categorical]
        feature, code = np.array(columns, dtype=np.intp).reshape(-1, 2).T
        return cls(feature, code)

    @classmethod
    def of_networks(cls, schema: TableSchema, networks: NeuralDifferenceModel) -> ColumnEncoding:
        """The scaled numeric features and the indicators that are inputs of networks."""
        scale, columns = networks.scale, cls.of_schema(schema)
        n_indicators = schema.n_encoded - len(schema.numeric)
        mean = np.append(scale.X_mean, np.zeros(n_indicators))
        mean_float32 = mean.astype(np.float32).astype(np.float64)
        factor = 1.0 / np.append(scale.X_spread, np.ones(n_indicators))
        no_features = np.full((1, schema.n_features), np.nan)
        fill = scale.transform(schema.to_rows(no_features)).features[0]
        used = used_columns(networks, schema)
        column_scale = ColumnScale(
            mean=mean_float32[used],
            mean_rest=(mean - mean_float32)[used],
            factor=factor[used],
            fill=fill[used],
        )
        return cls(columns.feature[used], columns.code[used], column_scale)

    def __len__(self) -> int:
        return len(self.feature)

    @property
    def has_codes(self) -> bool:
        """Whether a column is not simply a feature."""
        return bool((self.code != _VALUE).any())


def used_columns(model: DifferenceModel, schema: TableSchema) -> Indices:
    """Indices of the encoded features that networks use; of all of them for other models."""
    selected = model.columns if isinstance(model, NeuralDifferenceModel) else None
    return np.arange(schema.n_encoded) if selected is None else selected


@dataclass(frozen=True, eq=False)
class Core:
    """A model as a list of weighted estimates of y.

    A prediction is `center + unit · (weighted mean of the estimates)`, before residuals are added.

    Parameters
    ----------
    columns : ColumnEncoding
        The columns that are computed from the features of a row.
    anchors : ndarray of shape (n_anchors, n_features)
        The features of the anchors, as given.
    anchor_estimates : ndarray of shape (n_anchors,)
        Known values of the anchors, (y − center) / unit.
    anchor_weights : ndarray of shape (n_anchors,)
        The weights of their estimates, which sum to one.
    center, unit : float
        The value of y that an estimate of 0 stands for, and the factor of the estimates.
    """

    columns: ColumnEncoding
    anchors: Floats
    anchor_estimates: Floats
    anchor_weights: Floats
    center: float
    unit: float


# --- networks -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NetworkCore(Core):
    """An ensemble of networks; estimates are in units of the scaled y.

    The inputs of a network are the scaled columns and, with periodic embedding, the sines and
    cosines − 1 of each. There is a first layer for each side of a pair.
    """

    networks: NeuralDifferenceModel
    kind = "networks"

    @classmethod
    def of_twin(cls, fitted: FittedTwin) -> NetworkCore:
        """The networks of a twin, and its anchors."""
        networks, anchors = fitted.model, fitted.anchors
        assert isinstance(networks, NeuralDifferenceModel)
        return cls(
            columns=ColumnEncoding.of_networks(anchors.schema, networks),
            anchors=anchors.matrix,
            anchor_estimates=networks.scale.transform_y(anchors.outputs)[:, 0],
            anchor_weights=anchor_shares(fitted),
            center=float(networks.scale.y_mean[0]),
            unit=float(networks.scale.y_spread[0]),
            networks=networks,
        )

    @cached_property
    def _used(self) -> NDArray[np.intp]:
        """Members that have a weight."""
        return np.flatnonzero(self.networks.member_weights)

    @cached_property
    def parameters(self) -> dict[str, Singles]:
        """Parameters of the used members; leading axis member."""
        parameters = unpadded_parameters(self.networks, len(self.columns))
        return {name: value[self._used] for name, value in parameters.items()}

    @cached_property
    def has_waves(self) -> NDArray[np.bool_]:
        """(member,): whether a member has a periodic embedding."""
        has_gate = np.asarray(self.networks.gates)[self._used] != 0
        return has_gate & (self.networks.shape.n_frequencies > 0)

    @property
    def wave_numbers(self) -> NDArray[np.intp]:
        """(member,): the number of its embedding, or −1."""
        return np.where(self.has_waves, np.cumsum(self.has_waves) - 1, -1)

    @cached_property
    def first_layers(self) -> list[Singles]:
        """(side, hidden, input) of each member, whose inputs are the columns and their waves."""
        layers = []
        for member, has_waves in enumerate(self.has_waves):
            kinds = ["linear", "periodic"] if has_waves else ["linear"]
            sides = [
                np.concatenate([self.parameters[f"{kind}_{side}"][member] for kind in kinds]).T
                for side in range(2)
            ]
            layers.append(np.stack(sides))
        return layers

    @property
    def input_counts(self) -> list[int]:
        """(member,): inputs of the first layer."""
        return [layer.shape[2] for layer in self.first_layers]

    @property
    def first_starts(self) -> NDArray[np.intp]:
        """(member,): where its first layer begins among those of all members."""
        return np.cumsum([0, *(layer.size for layer in self.first_layers)])[:-1]

    @property
    def first_weights(self) -> Singles:
        """The first layers of all members, one after another."""
        return np.concatenate([layer.ravel() for layer in self.first_layers])

    @property
    def output_weight(self) -> Singles:
        """(member, hidden): half the weights, for both orders."""
        weight = self.parameters[f"weight_{len(self.networks.shape.hidden_sizes)}"][..., 0]
        return np.float32(0.5) * weight

    @property
    def member_weights(self) -> Floats:
        """(member,) weights that sum to one."""
        weights = self.networks.member_weights[self._used]
        return weights / weights.sum()

    @property
    def ram_bytes(self) -> int:
        """The bytes of the arrays on the stack while a row is predicted."""
        widths = self.networks.shape.hidden_sizes
        return 4 * (max(self.input_counts) + 4 * widths[0] + 2 * max(widths))


# --- scores of pair features ----------------------------------------------------------------------


class LinearScore(NamedTuple):
    """A linear function of the pair columns."""

    coefficients: Floats  # (column,)
    intercept: float

    @classmethod
    def of_estimator(cls, estimator: BaseEstimator, unit: float) -> LinearScore | None:
        """A linear model, also after scalers, multiplied by `unit`; None for other estimators."""
        is_pipeline = type(estimator) is Pipeline
        *scalers, last = [step for _, step in estimator.steps] if is_pipeline else [estimator]
        linear = read_linear(last)
        if linear is None or any(read_scaler(scaler) is None for scaler in scalers):
            return None
        n_outputs, n_columns = linear[0].shape
        check_single_output(n_outputs)
        # an affine function is given by its values at zero and at the unit vectors
        at_zero = np.ravel(estimator.predict(np.zeros((1, n_columns))))
        at_units = np.ravel(estimator.predict(np.eye(n_columns)))
        return cls((at_units - at_zero) * unit, float(at_zero[0]) * unit)


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


def _read_score(estimator: BaseEstimator, unit: float) -> LinearScore | TreeScore:
    """The trees or the coefficients of a regressor."""
    estimator = unwrap_search(estimator)
    if (trees := read_trees(estimator)) is not None:
        return TreeScore.of_ensemble(trees, unit)
    if (linear := LinearScore.of_estimator(estimator, unit)) is not None:
        return linear
    reason = f"C code supports trees and linear models, not estimator={type(estimator).__name__}"
    return refuse(reason, "use to_onnx, or a single twin (twinned fit --model twin)")


@dataclass(frozen=True, eq=False)
class PairCore(Core):
    """A score of pair features, with anchors.

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
    def of_twin(cls, fitted: FittedTwin) -> PairCore:
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
            unit=1.0,
            role=role,
            source_column=source_column,
            score=_read_score(model.estimator, model.unit),
            symmetric=model.symmetric,
        )

    @property
    def kind(self) -> str:
        """The part of the template that computes the score."""
        return "linear" if isinstance(self.score, LinearScore) else "trees"

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
