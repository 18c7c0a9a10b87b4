"""What a saved twin says of a table of questions."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import get_tags

from twinned._table import Floats
from twinned.estimators.twin import TwinRegressor
from twinned.intervals.stored import StoredIntervals, check_confidence
from twinned.serve.requests import Field, Wrong, as_table, checked, fields_of

COMPARABLES = 8
INTERVALS_FROM = 9  # scores, which are enough for the 90 % that the page asks for


class Told(NamedTuple):
    """What the model says of rows, as it learned y."""

    mean: Floats
    std: Floats  # raw
    sigma: Floats | None  # of intervals, where they are asked for

    def take(self, rows: slice) -> Told:
        sigma = None if self.sigma is None else self.sigma[rows]
        return Told(self.mean[rows], self.std[rows], sigma)


class Answers:
    """A loaded model, ready to be asked.

    Parameters
    ----------
    model : a fitted twin
        Of one output; or one whose target was learned as a logarithm by `twinned fit`.
    name : str
        For the page.
    """

    def __init__(self, model: Any, name: str) -> None:
        self.model, self.name = model, name
        self.twin = getattr(model, "regressor_", model)
        self.log = self.twin is not model
        if self.log and (model.func is not np.log or model.inverse_func is not np.exp):
            raise ValueError(f"{name} learned a target transformed otherwise than by log.")
        self.fields: list[Field] = fields_of(self.twin)
        self._named = hasattr(self.twin, "feature_names_in_")
        if self._named and all(field.choices is None for field in self.fields):
            # numbers come in the model's own order: an array, which is opened faster than a table
            self.twin = copy.copy(self.twin)
            del self.twin.feature_names_in_
        # neighbors of a point with a missing value need a metric that knows them
        metric = getattr(self.twin.anchors, "metric", "nan_euclidean")
        takes_missing = bool(get_tags(self.twin).input_tags.allow_nan)
        self._missing = takes_missing and metric == "nan_euclidean"
        if np.ndim(self.twin.anchors_y_) != 1:
            raise ValueError(f"{name} has several outputs; only a twin of one can be served.")
        if isinstance(self.twin, TwinRegressor):
            self.twin._get_ready()
        # the scores of left-out rows, which `twinned fit` makes a model keep
        self._kept = StoredIntervals(self.twin) if hasattr(self.twin, "intervals_") else None

    def about(self) -> dict[str, Any]:
        """The columns, with what may stand in them, and the number of anchors."""
        middles = self._middles()
        return {
            "name": self.name,
            "anchors": len(self.twin.anchors_y_),
            "intervals": self._kept is not None and len(self._kept.scores) >= INTERVALS_FROM,
            "columns": [
                {
                    "name": field.name,
                    "choices": None if field.choices is None else [str(c) for c in field.choices],
                    "middle": middle,
                }
                for field, middle in zip(self.fields, middles, strict=True)
            ],
        }

    def _middles(self) -> list[Any]:
        """A value of each column to start from: the median of the anchors, or the first name."""
        return [
            _median(column) if field.choices is None else str(field.choices[0])
            for field, column in zip(self.fields, np.asarray(self.twin.anchors_X_).T, strict=True)
        ]

    def checked(self, rows: list[Any]) -> list[list[Any]]:
        """Rows that the model can take, or `Wrong`."""
        return checked(rows, self.fields, missing=self._missing)

    def table(self, values: list[list[Any]]) -> Any:
        return as_table(values, self.fields, named=self._named)

    def check_confidence(self, confidence: float | None) -> None:
        """Whether there can be such intervals."""
        if confidence is None:
            return
        if self._kept is None:
            raise Wrong(
                f"{self.name} keeps no scores, so it has no intervals; fit it with a check."
            )
        try:
            check_confidence(confidence, len(self._kept.scores))
        except ValueError as error:
            raise Wrong(_one_line(error)) from None

    def predict(self, values: list[list[Any]], intervals: bool = False) -> Told:
        """What the model says of checked rows."""
        X = self.table(values)
        wanted = self._kept if intervals else None
        try:
            mean, std = self.twin.predict(X, return_std=True)
            return Told(mean, std, None if wanted is None else wanted.sigma(X, mean, std))
        except ValueError as error:
            raise Wrong(_one_line(error)) from None

    def shown(self, told: Told, confidence: float | None) -> dict[str, list[float]]:
        """What is answered, by name: of y itself, and with intervals where they are asked for."""
        mean, std, sigma = told
        found = {"prediction": mean, "std": std}
        if self.log:
            found = {"prediction": np.exp(mean), "std": np.exp(mean) * std}
        if confidence is not None and self._kept is not None and sigma is not None:
            ends = self._kept.ends(mean, sigma, confidence)
            found["low"], found["high"] = np.exp(ends).T if self.log else ends.T
        return {name: column.tolist() for name, column in found.items()}

    def explain(self, rows: list[Any]) -> dict[str, Any]:
        """For each row its nearest anchors, and what they say."""
        X = self.table(self.checked(rows))
        try:
            said = self.twin.explain(X, n=COMPARABLES)
        except ValueError as error:
            raise Wrong(_one_line(error)) from None
        unlog = np.exp if self.log else (lambda values: values)
        known, estimate = unlog(said["anchor_y"].to_numpy()), unlog(said["estimate"].to_numpy())
        answers: list[list[dict[str, Any]]] = [[] for _ in rows]
        for place, (query, anchor, weight) in enumerate(
            zip(said["query"], said["anchor"], said["weight"], strict=True)
        ):
            answers[query].append(
                {
                    "anchor": int(anchor),
                    "known": float(known[place]),
                    "difference": float(estimate[place] - known[place]),
                    "estimate": float(estimate[place]),
                    "weight": float(weight),
                    "columns": self._cells(int(anchor)),
                }
            )
        return {"comparables": answers}

    def _cells(self, anchor: int) -> dict[str, Any]:
        row = np.asarray(self.twin.anchors_X_)[anchor]
        return {
            field.name: _plain(value, field) for field, value in zip(self.fields, row, strict=True)
        }


def _one_line(error: Exception) -> str:
    """What a model has against values, for instance that one is too large."""
    return " ".join(str(error).split())[:300]


def _median(column: Any) -> float:
    known = column[~np.isnan(column)]
    return float(np.median(known)) if len(known) else 0.0


def _plain(value: Any, field: Field) -> Any:
    """For JSON: a number, a name for its code, or null where it is missing."""
    if np.isnan(value):
        return None
    if field.choices is None:
        return float(value)
    code = int(value)
    return str(field.choices[code]) if 0 <= code < len(field.choices) else None
