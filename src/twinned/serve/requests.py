"""Parsing and validation of requests: from bytes to rows of feature values."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags

from twinned._table import NUMERIC, ORDINAL, unknown_category

MAX_ROWS = 1_000
MAX_BODY_BYTES = 1_000_000
_MAX_ABSOLUTE_VALUE = 1e300
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": 1.0, "false": 0.0}
_MISSING = {"", "na", "n/a", "nan", "null", "none"}


class BadRequest(ValueError):
    """A request that cannot be processed: an HTTP status and one sentence."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


class InputFeature(NamedTuple):
    """A feature of the model, which is a column of the request."""

    name: str
    categories: list[Any] | None  # None for a numeric feature
    ordered: bool = False  # whose categories are levels, so that a new one has no meaning

    @property
    def labels(self) -> list[str] | None:
        """The categories as text."""
        return None if self.categories is None else [str(value) for value in self.categories]

    def parse_value(self, value: Any, row: str, allow_missing: bool) -> Any:
        """Return `value` as a number or a category, or None where it is missing.

        A category that is not known is returned as text, as `predict` takes it.
        """
        if self.categories is not None and (category := self._find_category(value)) is not None:
            return category  # before missing values, as a category may be named "none"
        if value is None or (isinstance(value, str) and value.strip().lower() in _MISSING):
            if allow_missing:
                return None
            raise BadRequest(f"{row}: {self.name!r} has no value, and the model needs one.")
        if self.categories is not None:
            text = str(value).strip()
            if isinstance(value, str | int | float) and not self.ordered and _is_unicode(text):
                return text
            allowed = ", ".join(map(str, self.categories[:8]))
            raise BadRequest(
                f"{row}: {self.name!r} must be one of {allowed}, not {_short_repr(value)}."
            )
        if isinstance(value, bool | str) and (text := str(value).strip().lower()) in _BOOLEANS:
            return _BOOLEANS[text]
        number = _to_float(value)
        if not abs(number) <= _MAX_ABSOLUTE_VALUE:  # true of NaN as well
            shown = _short_repr(value)
            raise BadRequest(f"{row}: {self.name!r} must be a number, not {shown}.")
        return number

    def unknown(self, values: Iterable[Any]) -> list[str]:
        """Return the different categories of parsed values that are not known."""
        if self.categories is None:
            return []
        known = {*self.categories, None}
        return [value for value in dict.fromkeys(values) if value not in known]

    def _find_category(self, value: Any) -> Any:
        """Return the category that equals `value`, directly or as text, or None."""
        text = str(value).strip()
        return next((c for c in self.categories or () if value == c or text == str(c)), None)


@dataclass(frozen=True)
class RequestSchema:
    """The features that each row of a request must have, in the order of the model."""

    features: list[InputFeature]
    named: bool  # whether the model was fitted with feature names
    allow_missing: bool

    @classmethod
    def from_twin(cls, twin: BaseEstimator) -> RequestSchema:
        """Return the schema of a fitted twin."""
        table = twin._schema
        names = getattr(twin, "feature_names_in_", [f"x{i}" for i in range(table.n_features)])
        # the neighbors of a row with a missing value need a metric that supports it
        metric = getattr(twin.anchors, "metric", "nan_euclidean")
        return cls(
            features=[
                InputFeature(str(name), None if kind == NUMERIC else list(known), kind == ORDINAL)
                for name, kind, known in zip(names, table.kinds, table.categories, strict=True)
            ],
            named=hasattr(twin, "feature_names_in_"),
            allow_missing=metric in ("nan_euclidean", "learned")
            and bool(get_tags(twin).input_tags.allow_nan),
        )

    @property
    def is_all_numeric(self) -> bool:
        """Whether there is no categorical feature."""
        return all(feature.categories is None for feature in self.features)

    def parse_rows(self, rows: list[Any], names: list[str] | None = None) -> list[list[Any]]:
        """Return the values of each row, a dict from the client, in the order of the features.

        `names` are those of the rows in messages; by default they count from 1.
        """
        if not rows:
            raise BadRequest("there are no rows.")
        if len(rows) > MAX_ROWS:
            raise BadRequest(f"{len(rows):,} rows are too many; send at most {MAX_ROWS:,}.", 413)
        parsed = []
        names = [f"row {number}" for number in range(1, len(rows) + 1)] if names is None else names
        for own_name, row in zip(names, rows, strict=True):
            if not isinstance(row, dict):
                raise BadRequest(f"{own_name} must be an object, not {_short_repr(row)}.")
            for feature in self.features:
                if feature.name not in row:
                    needed = _short_repr([f.name for f in self.features])
                    raise BadRequest(f"{own_name} lacks {feature.name!r}; it must have {needed}.")
            parsed.append(
                [f.parse_value(row[f.name], own_name, self.allow_missing) for f in self.features]
            )
        return parsed

    def warnings(self, rows: list[list[Any]]) -> list[str]:
        """Return one line for each feature of parsed rows with a category that is not known.

        The lines are those that `twinned predict` prints.
        """
        columns = zip(self.features, zip(*rows, strict=True), strict=True)
        unknown = ((feature.name, feature.unknown(values)) for feature, values in columns)
        return [unknown_category(name, values[0]) for name, values in unknown if values]

    def to_table(self, rows: list[list[Any]]) -> np.ndarray | pd.DataFrame:
        """Return parsed rows as the input of `predict`; a missing value becomes NaN."""
        if self.is_all_numeric:
            return np.array(rows, dtype=float)
        table = pd.DataFrame(
            {
                feature.name: np.array(values, dtype=float)
                if feature.categories is None
                else pd.Categorical(values, [*feature.categories, *feature.unknown(values)])
                for feature, values in zip(self.features, zip(*rows, strict=True), strict=True)
            }
        )
        return table if self.named else table.to_numpy()


def parse_json_body(body: bytes) -> tuple[list[Any], float | None]:
    """Return the rows of {"rows": [...]}, and the confidence of intervals or None."""
    try:
        content = json.loads(body.decode("utf-8"), parse_constant=_reject_constant)
    except (UnicodeDecodeError, ValueError, RecursionError):
        raise BadRequest('the body must be JSON: {"rows": [{name: value, …}, …]}.', 400) from None
    if not isinstance(content, dict) or not isinstance(content.get("rows"), list):
        raise BadRequest('the body must be an object with a list "rows".')
    if unknown := sorted(set(content) - {"rows", "confidence"}):
        raise BadRequest(f'{_short_repr(unknown[0])} is unknown; use "rows" and "confidence".')
    return content["rows"], parse_confidence(content.get("confidence"))


def parse_confidence(value: Any) -> float | None:
    """Return the confidence as a number, or None where the request has none."""
    if value is None:
        return None
    confidence = math.nan if isinstance(value, bool) else _to_float(value)
    if not 0 < confidence < 1:
        raise BadRequest(f"confidence must lie between 0 and 1, but is {_short_repr(value)}.")
    return confidence


def parse_csv_body(body: bytes) -> tuple[list[dict[str, str]], list[str]]:
    """Return the rows of a CSV file with a header line, and the line of each for messages."""
    try:
        reader = csv.reader(io.StringIO(body.decode("utf-8-sig"), newline=""), strict=True)
        lines = [(f"line {reader.line_num}", line) for line in reader if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadRequest(f"the body must be CSV in UTF-8: {error}.", 400) from None
    if not lines:
        raise BadRequest("the table is empty; its first line must name the columns.")
    header = [name.strip() for name in lines.pop(0)[1]]
    if len(set(header)) < len(header):
        repeated = next(name for name in header if header.count(name) > 1)
        raise BadRequest(f"the header names {_short_repr(repeated)} twice.")
    for name, line in lines:
        if len(line) != len(header):
            raise BadRequest(f"{name} has {len(line)} values, the header {len(header)}.")
    rows = [dict(zip(header, line, strict=True)) for _, line in lines]
    return rows, [name for name, _ in lines]


def _is_unicode(text: str) -> bool:
    """Return whether a text has no half of a surrogate pair, which JSON can escape."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _to_float(value: Any) -> float:
    """A number, or a text that is one in JSON, CSV and spreadsheets alike; NaN for all others."""
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        return math.nan
    try:
        return float(value) if isinstance(value, int | float | str) else math.nan
    except OverflowError:
        return math.nan


def _reject_constant(text: str) -> Any:
    raise ValueError(text)  # NaN and Infinity are not JSON


def _short_repr(value: Any) -> str:
    """Return the repr of a value, cut to 80 characters."""
    text = repr(value[:60]) if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
