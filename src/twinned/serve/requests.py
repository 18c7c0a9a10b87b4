"""Parsing and validation of requests: from bytes to rows of feature values."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags

from twinned._table import NUMERIC, ORDINAL, Floats, unknown_category
from twinned.tables import (
    EPOCH,
    LIMIT,
    PARTS,
    ReadOptions,
    Table,
    are_dates,
    copied_columns,
    derived_from,
    is_missing,
    is_model,
    parse_dates,
    parse_limit,
    parse_table,
    prediction_frame,
    source_columns,
)

MAX_ROWS = 1_000
MAX_BODY_BYTES = 1_000_000
_MAX_ABSOLUTE_VALUE = 1e300
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": 1.0, "false": 0.0}
_BINARY_FILES = (b"PK\x03\x04", b"PAR1", b"\xd0\xcf\x11\xe0")  # Excel and Parquet
_MAX_EXAMINED = 20  # dates of a request that are tried one by one for a message
_MAX_DAYS = 80_000  # from 1970, of a date
_logger = logging.getLogger("twinned")


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
    def feature_names(self) -> list[str]:
        return [self.name]

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
        if value is None or (isinstance(value, str) and is_missing(value.strip())):
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


class InputDate(NamedTuple):
    """A date of the request, whose parts are features of the model."""

    name: str
    features: dict[str, str]  # the feature of each part

    @property
    def has_time(self) -> bool:
        return "hour" in self.features

    @property
    def feature_names(self) -> list[str]:
        return list(self.features.values())

    def add_parts(self, rows: list[dict[str, Any]], names: list[str], allow_missing: bool) -> None:
        """Add the features to rows that have the date instead; all rows have one notation."""
        dated = [
            (row_name, row, str(row[self.name] or "").strip())
            for row_name, row in zip(names, rows, strict=True)
            if self.name in row and not row.keys() >= set(self.feature_names)
        ]
        first_row: dict[str, str] = {}
        for row_name, _, cell in dated:
            if not is_missing(cell):
                first_row.setdefault(cell, row_name)
            elif not allow_missing:
                raise BadRequest(
                    f"{row_name}: {self.name!r} has no value, and the model needs one."
                )
        by_cell = dict(zip(first_row, self._parse(first_row), strict=True))
        for _, row, cell in dated:
            for part, feature in self.features.items():
                row[feature] = PARTS[part](by_cell[cell]) if cell in by_cell else None

    def _parse(self, first_row: dict[str, str]) -> list[datetime]:
        """Return the dates of cells, each with the name of its first row for messages."""
        cells = list(first_row)
        try:
            dates = parse_dates(cells) if cells else []
        except ValueError as error:
            raise BadRequest(f"{self.name!r}: {error}; write 2024-01-31.") from None
        if dates is not None:
            return dates
        wrong = [cell for cell in cells[:_MAX_EXAMINED] if not are_dates([cell])]
        if not wrong:
            raise BadRequest(f"{self.name!r} has dates of several notations; write 2024-01-31.")
        raise BadRequest(
            f"{first_row[wrong[0]]}: {self.name!r} must be a date such as 2024-01-31, not "
            f"{_short_repr(wrong[0])}."
        )


@dataclass(frozen=True)
class RequestSchema:
    """The features that each row of a request must have, in the order of the model.

    A row may have a date instead of its parts; and a feature of limits follows from its column,
    where a value may be a limit such as <5.
    """

    features: list[InputFeature]
    named: bool  # whether the model was fitted with feature names
    allow_missing: bool
    dates: list[InputDate]
    limits: dict[str, str]  # the feature that marks the limits of another one

    @classmethod
    def from_twin(cls, twin: BaseEstimator) -> RequestSchema:
        """Return the schema of a fitted twin."""
        table = twin._schema
        names = getattr(twin, "feature_names_in_", [f"x{i}" for i in range(table.n_features)])
        # the neighbors of a row with a missing value need a metric that supports it
        metric = getattr(twin.anchors, "metric", "nan_euclidean")
        known = dict(zip(map(str, names), np.asarray(twin.anchors_X_, dtype=float).T, strict=True))
        dates, limits = _derived_features(known)
        return cls(
            features=[
                InputFeature(str(name), None if kind == NUMERIC else list(known), kind == ORDINAL)
                for name, kind, known in zip(names, table.kinds, table.categories, strict=True)
            ],
            named=hasattr(twin, "feature_names_in_"),
            allow_missing=metric in ("nan_euclidean", "learned")
            and bool(get_tags(twin).input_tags.allow_nan),
            dates=dates,
            limits=limits,
        )

    @property
    def names(self) -> list[str]:
        """The names of the features."""
        return [feature.name for feature in self.features]

    @property
    def inputs(self) -> list[InputFeature | InputDate]:
        """What a row must have: dates instead of their parts, and no features of limits."""
        of_date = {feature: date for date in self.dates for feature in date.feature_names}
        others = (f for f in self.features if f.name not in self.limits.values())
        found = (of_date.get(feature.name, feature) for feature in others)
        return list({own.name: own for own in found}.values())

    @property
    def is_all_numeric(self) -> bool:
        """Whether there is no categorical feature."""
        return all(feature.categories is None for feature in self.features)

    def parse_rows(self, rows: list[Any]) -> list[list[Any]]:
        """Return the values of each row, a dict from the client, in the order of the features."""
        if not rows:
            raise BadRequest("there are no rows.")
        if len(rows) > MAX_ROWS:
            raise BadRequest(f"{len(rows):,} rows are too many; send at most {MAX_ROWS:,}.", 413)
        names = [f"row {number}" for number in range(1, len(rows) + 1)]
        for row_name, row in zip(names, rows, strict=True):
            if not isinstance(row, dict):
                raise BadRequest(f"{row_name} must be an object, not {_short_repr(row)}.")
        rows = [self._split_limits(row) for row in rows]
        for date in self.dates:
            date.add_parts(rows, names, self.allow_missing)
        for row_name, row in zip(names, rows, strict=True):
            if not row.keys() >= set(self.names):
                raise BadRequest(self._describe_absent(row_name, row))
        return [
            [f.parse_value(row[f.name], row_name, self.allow_missing) for f in self.features]
            for row_name, row in zip(names, rows, strict=True)
        ]

    def _describe_absent(self, row_name: str, row: dict[str, Any]) -> str:
        """Return a sentence on the first input that a row lacks."""
        names = {own.name: own.feature_names for own in self.inputs}
        absent = next(name for name, own in names.items() if not row.keys() >= set(own))
        return f"{row_name} lacks {absent!r}; it must have {_short_repr(list(names))}."

    def _split_limits(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row with numbers in place of limits, and with the features that mark them."""
        row = dict(row)
        for name, marker in self.limits.items():
            if name in row and marker not in row:
                row[marker] = 0.0
                if (limit := parse_limit(str(row[name]).strip())) is not None:
                    row[name], row[marker] = limit
        return row

    def parse_table(self, table: Table) -> tuple[list[list[Any]], list[str]]:
        """Return the values of each row of a file, as `parse_rows`, and notes on limits."""
        if len(table) > MAX_ROWS:
            raise BadRequest(f"{len(table):,} rows are too many; send at most {MAX_ROWS:,}.", 413)
        categories = [own.categories for own in self.features]
        with value_error_as_bad_request():
            table.require(source_columns(table, self.names), "features of the model")
            X, notes = prediction_frame(table, self.names, categories)
        values = X.astype(object).where(X.notna(), None).to_numpy()
        parsed = [
            [
                feature.parse_value(value, table.row_name(row), self.allow_missing)
                for feature, value in zip(self.features, own, strict=True)
            ]
            for row, own in enumerate(values)
        ]
        return parsed, notes

    def copied_columns(self, table: Table) -> dict[str, list[str]]:
        """Return the columns of a file, those of numeric features with decimal points."""
        return copied_columns(table, self.names, [own.categories for own in self.features])

    def warnings(self, rows: list[list[Any]]) -> list[str]:
        """Return one line for each feature of parsed rows with a category that is not known.

        The lines are those that `twinned predict` prints.
        """
        columns = zip(self.features, zip(*rows, strict=True), strict=True)
        unknown = ((feature.name, feature.unknown(values)) for feature, values in columns)
        return [unknown_category(name, values[0]) for name, values in unknown if values]

    def to_table(
        self, rows: list[list[Any]], *, with_names: bool = False
    ) -> np.ndarray | pd.DataFrame:
        """Return parsed rows as the input of `predict`; a missing value becomes NaN.

        Rows of numbers are an array, unless they are wanted with the names of the features.
        """
        if self.is_all_numeric and not (with_names and self.named):
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


def parse_csv_body(body: bytes) -> Table:
    """Return a CSV file with a header line as a table, in any encoding and notation of numbers."""
    if body.startswith(_BINARY_FILES) and not is_model(body):
        raise BadRequest("the table must be CSV; save it so, or use twinned predict.", 400)
    with value_error_as_bad_request():
        return parse_table(Path("the table"), body, ReadOptions())


def _derived_features(known: dict[str, Floats]) -> tuple[list[InputDate], dict[str, str]]:
    """Return the dates and limits that features are made from.

    `known` has the values of each feature: a column of the user may have such a name, too.
    """
    dates: dict[str, dict[str, str]] = {}
    limits: dict[str, str] = {}
    for name, values in known.items():
        source, part = derived_from(name)
        if part == LIMIT and source in known and np.isin(values, [-1, 0, 1]).all():
            limits[source] = name
        elif part in PARTS and source not in known:
            dates.setdefault(source, {})[part] = name
    found = [InputDate(*own) for own in dates.items()]
    return [
        own for own in found if _are_parts({p: known[n] for p, n in own.features.items()})
    ], limits


def _are_parts(values: dict[str, Floats]) -> bool:
    """Whether columns are the days and other parts of the same dates."""
    if not {"days"} < values.keys():
        return False
    days = values["days"]
    present = ~np.isnan(days)
    if not (present.any() and np.all(np.abs(days[present]) < _MAX_DAYS)):
        return False
    dates = [EPOCH + timedelta(days=float(day)) for day in days[present]]
    return all(
        np.allclose([PARTS[part](date) for date in dates], own[present], atol=0.02)
        for part, own in values.items()
    )


@contextmanager
def value_error_as_bad_request() -> Iterator[None]:
    """Report what a table or the model rejects, for instance a value too large, in one line."""
    try:
        yield
    except ValueError as error:
        _logger.debug("A request was rejected.", exc_info=True)
        raise BadRequest(" ".join(str(error).split())[:300]) from error


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
