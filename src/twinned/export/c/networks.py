"""Ensembles of networks in single precision, as C: of differences to anchors, or of y itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from twinned.export.c.core import ColumnEncoding, Core, Singles
from twinned.export.model_parts import Networks, unpadded_parameters
from twinned.fitted.twin import FittedTwin
from twinned.models.neural.difference_model import NeuralDifferenceModel, PlainNetworks
from twinned.models.neural.problem import Scale
from twinned.rows.schema import Floats, TableSchema


@dataclass(frozen=True, eq=False)
class NetworkCore(Core):
    """An ensemble of networks; estimates are in units of the scaled y.

    The inputs of a network are the scaled columns and, with periodic embedding, the sines and
    cosines − 1 of each. A twin has a first layer for each side of a pair.
    """

    networks: Networks

    @property
    def kind(self) -> str:
        return "networks"

    @classmethod
    def of_twin(cls, state: FittedTwin, weights: Floats) -> NetworkCore:
        """The networks of a twin whose anchors have these weights, which sum to one."""
        networks = state.model
        assert isinstance(networks, NeuralDifferenceModel)
        known_y = networks.scale.transform_y(state.anchors.targets)[:, 0].astype(np.float32)
        return cls(
            _scaled_columns(state.anchors.schema, networks),
            state.anchors.X.astype(np.float32),
            known_y,
            weights,
            *_center_and_unit(networks.scale),
            networks,
        )

    @classmethod
    def of_plain(cls, networks: PlainNetworks, schema: TableSchema) -> NetworkCore:
        """Networks that predict y itself."""
        columns = _scaled_columns(schema, networks)
        zero, one = np.zeros(1, dtype=np.float32), np.ones(1)
        return cls(columns, None, zero, one, *_center_and_unit(networks.scale), networks)

    # --- what the template reads --------------------------------------------------------------

    @cached_property
    def _used(self) -> NDArray[np.intp]:
        """Members that have a weight."""
        return np.flatnonzero(self.networks.member_weights)

    @cached_property
    def parameters(self) -> dict[str, Singles]:
        """Parameters of the used members; leading axis member."""
        every = unpadded_parameters(self.networks, len(self.columns))
        return {name: value[self._used] for name, value in every.items()}

    @property
    def activation(self) -> str:
        return self.networks.shape.activation

    @property
    def n_frequencies(self) -> int:
        return self.networks.shape.n_frequencies

    @property
    def widths(self) -> list[int]:
        """Of the hidden layers."""
        return list(self.networks.shape.hidden_sizes)

    @cached_property
    def has_waves(self) -> NDArray[np.bool_]:
        """(member,): whether a member has a periodic embedding."""
        return (np.asarray(self.networks.gates)[self._used] != 0) & (self.n_frequencies > 0)

    @property
    def wave_numbers(self) -> NDArray[np.intp]:
        """(member,): the number of its embedding, or −1."""
        return np.where(self.has_waves, np.cumsum(self.has_waves) - 1, -1)

    @cached_property
    def first_layers(self) -> list[Singles]:
        """(side, hidden, input) of each member, whose inputs are the columns and their waves."""
        sides = range(1 if self.anchors is None else 2)
        layers = []
        for member, has_waves in enumerate(self.has_waves):
            kinds = ["linear", "periodic"][: 1 + has_waves]
            parts = [
                np.concatenate([self.parameters[f"{kind}_{side}"][member] for kind in kinds]).T
                for side in sides
            ]
            layers.append(np.stack(parts))
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
        """(member, hidden); of a twin half the weights, for both orders."""
        factor = np.float32(1.0 if self.anchors is None else 0.5)
        return factor * self.parameters[f"weight_{len(self.widths)}"][..., 0]

    @property
    def output_bias(self) -> Singles:
        """(member,); that of a twin cancels."""
        bias = self.parameters[f"bias_{len(self.widths)}"][:, 0]
        return bias if self.anchors is None else np.zeros_like(bias)

    @property
    def member_weights(self) -> Floats:
        """(member,) weights that sum to one."""
        weights = self.networks.member_weights[self._used]
        return weights / weights.sum()

    @property
    def weights(self) -> Floats:
        return np.outer(self.member_weights, self.anchor_weights).ravel()

    @property
    def ram_bytes(self) -> int:
        halves = 1 if self.anchors is None else 4
        return 4 * (max(self.input_counts) + halves * self.widths[0] + 2 * max(self.widths))

    def estimates(self, X: Singles) -> Singles:
        """(row, member × anchor): networks of the library, on columns as the C code computes."""
        from twinned.models.neural.device import on_device
        from twinned.models.neural.difference_model import (
            TrainedNetworks,
            anchor_differences,
            row_outputs,
        )
        from twinned.models.neural.network import pad_to

        networks, shape = self.networks, self.networks.shape
        trained = TrainedNetworks(shape, networks.parameters, networks.gates)

        def inputs(rows: Singles) -> Singles:
            return pad_to(self.columns.encode(rows), len(rows), shape.n_features)

        with on_device(networks.device, networks.n_jobs):
            if self.anchors is None:
                out = row_outputs(trained, inputs(X))
            else:
                out = anchor_differences(trained, inputs(X), inputs(self.anchors))[..., 0]
        estimates = out[self._used] + self.anchor_estimates
        return estimates.transpose(1, 0, 2).reshape(len(X), -1)


def _center_and_unit(scale: Scale) -> tuple[float, float]:
    return float(scale.y_mean[0]), float(scale.y_spread[0])


def _scaled_columns(schema: TableSchema, networks: Networks) -> ColumnEncoding:
    """The scaled numeric features and the indicators that are inputs of networks."""
    scale, selected = networks.scale, networks.columns
    every = ColumnEncoding.of_schema(schema)
    n_indicators = schema.n_encoded - len(schema.numeric)
    mean = np.concatenate([scale.X_mean, np.zeros(n_indicators)])
    spread = np.concatenate([scale.X_spread, np.ones(n_indicators)])
    no_features = np.full((1, schema.n_features), np.nan)
    fill = scale.transform(schema.to_rows(no_features)).features[0]
    used = np.arange(schema.n_encoded) if selected is None else selected
    feature, code = every.feature[used], every.code[used]
    return ColumnEncoding(feature, code, mean[used], spread[used], fill[used])
