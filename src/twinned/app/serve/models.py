"""Requests and responses as pydantic models, which are made from the schema of a fitted twin."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import pydantic
from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from pydantic.json_schema import GenerateJsonSchema, models_json_schema
from pydantic_core import ErrorDetails, PydanticCustomError
from sklearn.utils import get_tags

from twinned._version import __version__
from twinned.app.tables.columns import BOOLEANS, EPOCH, PARTS, date_columns, parse_limit
from twinned.app.tables.frames import LIMIT, derived_from, prediction_frame, source_columns
from twinned.app.tables.numbers import is_missing
from twinned.app.tables.table import Table, join_names
from twinned.estimators.base import BaseTwin
from twinned.exceptions import MissingExtraError
from twinned.rows.batches import unknown_batches
from twinned.rows.schema import NUMERIC, ORDINAL, Floats, unknown_categories

MAX_ROWS = 1_000
MAX_KNOWN_ROWS = 10
MAX_PROPOSALS = _MAX_CONSTRAINTS = 20
_MAX_ABSOLUTE_VALUE = 1e300
_MAX_DAYS = 80_000  # from 1970, of a date
_LOGGER = logging.getLogger("twinned")

# In a message: quoted names and cells, which stay as they are, and dashes of an option.
_OPTION = re.compile(r"""('[^']*'|"[^"]*")|--(?=[a-z])""")

Value = float | str | int | None  # a number, a category, or None where the value is missing
Label = Literal["inside", "edge", "outside"]
ParsedRows = Sequence[Sequence[Value]]  # (row, feature), and the batch of a model with batches
KnownRows = tuple[tuple[Value, ...], ...]  # as parsed rows, with the target last
Json = dict[str, Any]


class BadRequest(ValueError):
    """A request that cannot be processed: an HTTP status and one sentence."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


@contextmanager
def refuse_value_errors() -> Iterator[None]:
    """Report what a table or the model rejects, for instance a value too large, in one line.

    Options of the command line that a message names are parameters of `/batch`.
    """
    try:
        yield
    except (ValueError, MissingExtraError) as error:
        _LOGGER.debug("A request was rejected.", exc_info=True)
        text = _OPTION.sub(lambda found: found[1] or "the parameter ", str(error))
        raise BadRequest(" ".join(text.split())[:300]) from error


def short_repr(value: object) -> str:
    """Return the repr of a value, cut to 80 characters."""
    text = repr(value[:60]) if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _check_digits(value: object) -> object:
    """Refuse digits that Python groups by underscores; neither JSON nor CSV has them."""
    if isinstance(value, str) and "_" in value:
        raise PydanticCustomError("number", "must be a number")
    return value


Number = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_check_digits)]
Confidence = Annotated[Number, Field(gt=0, lt=1)]


class ParsedRequest(NamedTuple):
    """The rows of a request, the confidence, and further known rows of its batches."""

    rows: ParsedRows
    confidence: float | None
    known: KnownRows


class InputFeature(NamedTuple):
    """A feature of the model, which is a column of the request."""

    name: str
    categories: list[Any] | None  # None for a numeric feature
    ordered: bool  # whose categories are levels, so that a new one has no meaning
    allow_missing: bool
    allow_limits: bool  # such as <5

    @property
    def labels(self) -> list[str] | None:
        """The categories as text."""
        return None if self.categories is None else [str(value) for value in self.categories]

    def field_type(self) -> object:
        """Return the type of the field of a pydantic model, with its description."""
        if self.categories is None:
            kind = ["number", "string"] if self.allow_limits else "number"
            limits = Field(ge=-_MAX_ABSOLUTE_VALUE, le=_MAX_ABSOLUTE_VALUE)
            before = BeforeValidator(self._prepare_number)
            return Annotated[Number | None, limits, before, pydantic.WithJsonSchema({"type": kind})]
        schema: Json = {"enum": self.labels}
        if not self.ordered:
            schema = {"anyOf": [schema, {"type": "string"}]}
        validator = pydantic.PlainValidator(self._parse_category)
        return Annotated[object, validator, pydantic.WithJsonSchema(schema)]

    def _check_missing(self, value: object) -> bool:
        """Return whether a value is missing, where the model accepts that."""
        missing = value is None or (isinstance(value, str) and is_missing(value.strip()))
        if missing and not self.allow_missing:
            raise ValueError("has no value, and the model needs one")
        return missing

    def _prepare_number(self, value: object) -> object:
        if self._check_missing(value):
            return None
        text = value.strip().lower() if isinstance(value, str) else ""
        return BOOLEANS.get(text, value)

    def _parse_category(self, value: object) -> object:
        """Return a known category; a new one as text, as `predict` takes it; or None."""
        text = str(value).strip()
        for category in self.categories or ():  # one may be named "none"
            if value == category or text == str(category):
                return category
        if self._check_missing(value):
            return None
        has_surrogate = any("\ud800" <= character <= "\udfff" for character in text)
        if isinstance(value, str | int | float) and not self.ordered and not has_surrogate:
            return text
        allowed = ", ".join((self.labels or [])[:8])
        raise ValueError(f"must be one of {allowed}, not {short_repr(value)}")


class InputDate(NamedTuple):
    """A date of the request, whose parts are features of the model."""

    name: str
    features: dict[str, str]  # the feature of each part

    def add_parts(self, rows: list[Json]) -> None:
        """Add the features to rows that have the date instead; all rows have one notation."""
        parts = set(self.features.values())
        dated = {
            number: row
            for number, row in enumerate(rows, start=1)
            if isinstance(row, dict) and self.name in row and not parts <= row.keys()
        }
        cells = [str(row[self.name] or "").strip() for row in dated.values()]
        table = Table(Path("the request"), [self.name], [cells], list(dated), line_word="row")
        for part, values in date_columns(table, self.name, self.features).items():
            for row, value in zip(dated.values(), values.tolist(), strict=True):
                row[self.features[part]] = None if np.isnan(value) else value


class RequestSchema:
    """The features that each row of a request must have, in the order of a fitted twin.

    A row may have a date instead of its parts; and a feature of limits follows from its column,
    where a value may be a limit such as <5.

    Attributes
    ----------
    features : list of InputFeature
    inputs : list of InputFeature and InputDate
        What a row must have: dates instead of their parts, and no features of limits; and the batch
        of a model with batches, which may be missing.
    sources : dict
        The input of each feature that is a part of a date, or marks limits.
    batch : list of InputFeature
        That of the batch, or none.
    target : str
        The name of the target, which a known row must have.
    model : pydantic model of the body of a request
    """

    def __init__(self, twin: BaseTwin) -> None:
        fitted = twin.fitted_
        table = fitted.anchors.schema
        self.names = twin.feature_labels()
        self.named = "feature_names_in_" in vars(twin)
        # the metric of the anchors must take missing values, too
        takes_missing = fitted.nearest is None or fitted.nearest[1] in ("nan_euclidean", "learned")
        self.allow_missing = takes_missing and bool(get_tags(twin).input_tags.allow_nan)
        columns = dict(zip(self.names, fitted.anchors.X.T, strict=True))
        self._dates, self._limits = _find_sources(columns)
        kinds = zip(table.kinds, table.categories, strict=True)
        self.categories = [None if kind == NUMERIC else list(known) for kind, known in kinds]
        self.is_all_numeric = table.is_all_numeric
        self.features = [
            InputFeature(name, known, kind == ORDINAL, self.allow_missing, name in self._limits)
            for name, known, kind in zip(self.names, self.categories, table.kinds, strict=True)
        ]
        # the column of the request that each other feature is made from
        self.sources = {marker: name for name, marker in self._limits.items()}
        for date in self._dates:
            self.sources |= dict.fromkeys(date.features.values(), date.name)
        possible: list[InputFeature | InputDate] = [*self.features, *self._dates]
        by_name = {each.name: each for each in possible}
        names = dict.fromkeys(self.sources.get(name, name) for name in self.names)
        self.batch: list[InputFeature] = []
        if fitted.batches is not None:
            name = vars(twin).get("batch_name_") or "batch"
            self.batch = [InputFeature(name, fitted.batches.names, False, True, False)]
        self.inputs = [*(by_name[name] for name in names), *self.batch]
        self.target = str(vars(twin).get("target_name_", "y"))
        self.model = self._make_model()

    def _make_model(self) -> type[BaseModel]:
        inputs = [(each, ...) for each in self.features] + [(each, None) for each in self.batch]
        fields: Json = {
            f"feature_{i}": (each.field_type(), Field(default, alias=each.name))
            for i, (each, default) in enumerate(inputs)
        }
        config = pydantic.ConfigDict(json_schema_extra=self._describe_inputs)
        row = pydantic.create_model("Row", __config__=config, **fields)
        limits, add = Field(min_length=1, max_length=MAX_ROWS), BeforeValidator(self._add_features)
        rows = Annotated[list[row], limits, add]  # type: ignore[valid-type]
        request: Json = {"confidence": (Confidence | None, None), "rows": (rows, ...)}
        if self.batch:
            (name, labels), batch_field = self.batch[0][:2], list(fields)[-1]
            batch = InputFeature(name, labels, False, False, False)
            target = InputFeature(self.target, None, False, False, False)
            fields[batch_field] = (batch.field_type(), Field(alias=batch.name))
            fields["target"] = (target.field_type(), Field(alias=target.name))
            known = pydantic.create_model("KnownRow", __config__=config, **fields)
            few = Annotated[list[known], Field(max_length=MAX_KNOWN_ROWS), add]  # type: ignore[valid-type]
            request["known"] = (few, [])
        config = pydantic.ConfigDict(extra="forbid")
        return pydantic.create_model("Request", __config__=config, **request)

    def _describe_inputs(self, schema: Json) -> None:
        """Replace the features of a row by the inputs that they are made from."""
        properties = schema["properties"]
        for date in self._dates:
            example = "2024-01-31T12:30" if "hour" in date.features else "2024-01-31"
            properties[date.name] = {"type": "string", "examples": [example]}
        sources = {name: self.sources.get(name, name) for name in properties}
        schema["properties"] = {name: properties[name] for name in dict.fromkeys(sources.values())}
        schema["required"] = list(dict.fromkeys(sources[name] for name in schema["required"]))

    def parse_rows(self, content: object, row_names: list[str] | None = None) -> ParsedRequest:
        """Return the values of each row in the order of the features, and what else is given.

        `content` is {"rows": [{name: value}], "confidence": number, "known": [{name: value}]}; the
        last only for a model with batches. Messages have the names of the rows; by default they
        are counted.
        """
        try:
            request: Any = self.model.model_validate(content)
        except ValidationError as error:
            raise self._to_bad_request(error.errors()[0], row_names) from None
        rows = [list(vars(row).values()) for row in request.rows]
        known = tuple(tuple(vars(row).values()) for row in request.known) if self.batch else ()
        return ParsedRequest(rows, request.confidence, known)

    def _to_bad_request(self, error: ErrorDetails, row_names: list[str] | None) -> BadRequest:
        """Return an error of pydantic as one sentence."""
        location, kind, shown = error["loc"], error["type"], short_repr(error["input"])
        cause = error.get("ctx", {}).get("error")
        listed = "known rows" if location[:1] == ("known",) else "rows"
        if location[:1] == ("confidence",):
            return BadRequest(f"confidence must lie between 0 and 1, but is {shown}.")
        if kind == "extra_forbidden":
            used = join_names(list(self.model.model_fields))
            return BadRequest(f"{short_repr(location[0])} is unknown; use {used}.")
        if kind == "too_short":
            return BadRequest("there are no rows.")
        if kind == "too_long":
            most = error["ctx"]["max_length"]
            return BadRequest(f"there are too many {listed}; send at most {most:,}.", 413)
        if len(location) < 2:
            name = listed.split()[0]
            return BadRequest(str(cause or f'the body must be an object with a list "{name}".'))
        number, *names = location[1:]
        row = f"{listed[:-1]} {int(number) + 1}"
        if row_names is not None and listed == "rows":
            row = row_names[int(number)]
        if not names:
            return BadRequest(f"{row} must be an object, not {shown}.")
        name = self.sources.get(str(names[0]), str(names[0]))
        if kind == "missing":
            needed = [each.name for each in self.inputs] + [self.target] * (listed != "rows")
            return BadRequest(f"{row} lacks {name!r}; it must have {join_names(needed)}.")
        hint = "; write a decimal point" if "," in shown else ""
        return BadRequest(f"{row}: {name!r} {cause or f'must be a number, not {shown}{hint}'}.")

    def _add_features(self, rows: object) -> object:
        """Return rows with the features that follow from limits and dates."""
        if not isinstance(rows, list) or not (self._limits or self._dates):
            return rows
        rows = [self._split_limits(row) if isinstance(row, dict) else row for row in rows]
        for date in self._dates:
            date.add_parts(rows)
        return rows

    def _split_limits(self, row: Json) -> Json:
        """Return a row with numbers in place of limits, and with the features that mark them."""
        row = dict(row)
        for name, marker in self._limits.items():
            if name in row and marker not in row:
                row[marker] = 0.0
                if (limit := parse_limit(str(row[name]).strip())) is not None:
                    row[name], row[marker] = limit
        return row

    def parse_table(self, table: Table, options: Json) -> tuple[list[ParsedRequest], list[str]]:
        """Return the rows of a file as requests with these options, and notes."""
        with refuse_value_errors():
            table.require(source_columns(table, self.names), "features of the model")
            known = [*self.features, *(each for each in self.batch if each.name in table.names)]
            kinds = {each.name: each.categories for each in known}
            X, notes = prediction_frame(table, list(kinds), list(kinds.values()))
        if table.detected:
            notes = [f"the table is read with {', '.join(table.detected)}.", *notes]
        batches, row_names = [], table.row_names()
        for first in range(0, len(X), MAX_ROWS):
            batch = slice(first, first + MAX_ROWS)
            some = X.iloc[batch].astype(object)
            rows = some.where(some.notna(), None).to_dict("records")
            batches.append(self.parse_rows({"rows": rows, **options}, row_names[batch]))
        return batches, notes

    def warnings(self, rows: ParsedRows) -> list[str]:
        """Return one line for each feature of parsed rows with a category that is not known.

        The lines are those that `twinned predict` prints.
        """
        lines = []
        inputs = [*self.features, *self.batch]
        for feature, values in zip(inputs, zip(*rows, strict=True), strict=True):
            if feature.categories is not None:
                known = {*feature.categories, None}
                new = [value for value in dict.fromkeys(values) if value not in known]
                describe = unknown_batches if feature in self.batch else unknown_categories
                lines += [describe(feature.name, new)] if new else []
        return lines

    def to_table(self, rows: ParsedRows, *, with_names: bool = False) -> np.ndarray | pd.DataFrame:
        """Return parsed rows as the input of `predict`; a missing value becomes NaN.

        Rows of numbers are an array, unless they are wanted with the names of the features.
        """
        rows = [row[: len(self.features)] for row in rows]  # without the batch
        if self.is_all_numeric and not (with_names and self.named):
            return np.array(rows, dtype=float)
        numeric = [feature.name for feature in self.features if feature.categories is None]
        table = pd.DataFrame(rows, columns=self.names, dtype=object)
        table = table.astype(dict.fromkeys(numeric, float))
        return table if self.named else table.to_numpy()


def _find_sources(columns: dict[str, Floats]) -> tuple[list[InputDate], dict[str, str]]:
    """Return the dates that features are parts of, and the features that mark limits of others.

    `columns` has the values of each feature: a column of the user may have such a name, too.
    """
    parts_of: dict[str, dict[str, str]] = {}
    limits: dict[str, str] = {}
    for name, values in columns.items():
        source, part = derived_from(name)
        if part == LIMIT and source in columns and np.isin(values, [-1, 0, 1]).all():
            limits[source] = name
        elif part in PARTS and source not in columns:
            parts_of.setdefault(source, {})[part] = name
    dates = [InputDate(date, own) for date, own in parts_of.items() if _are_parts(own, columns)]
    return dates, limits


def _are_parts(features: dict[str, str], columns: dict[str, Floats]) -> bool:
    """Return whether the features of each part are the days and other parts of the same dates."""
    if not {"days"} < features.keys():
        return False
    days = columns[features["days"]]
    present = ~np.isnan(days)
    if not (present.any() and np.all(np.abs(days[present]) < _MAX_DAYS)):
        return False
    dates = [EPOCH + timedelta(days=float(day)) for day in days[present]]
    return all(
        np.allclose([PARTS[part](date) for date in dates], columns[name][present], atol=0.02)
        for part, name in features.items()
    )


class Predictions(BaseModel):
    """Predictions and raw standard deviations of all rows.

    With a confidence also prediction intervals, where the model stores them, and whether a row is
    inside, at the edge or outside of the known cases.
    """

    prediction: list[float]
    std: list[float]
    low: list[float] = []
    high: list[float] = []
    applicability: list[Label] = []
    warnings: list[str] = []


class Explanations(BaseModel):
    """The comparable known cases of each row, their share of the weight of the prediction, the
    estimate from them alone, and the weighted means of all other cases.

    Also whether the row is inside, at the edge or outside of the known cases.
    """

    comparables: list[list[dict[str, object]]]
    share: list[float]
    comparables_estimate: list[float]
    others: list[dict[str, object] | None]
    applicability: list[dict[str, float | Label]]
    warnings: list[str] = []


class SolveRequest(BaseModel):
    """The row to be changed, or the number of a known case, from 0; and the wanted target: a
    number, ">= 60", "<= 5", "40..60", "max" or "min". `bounds` are [lowest, highest] by column,
    `constraints` such as "a + b + c = 100".

    With a confidence, the prediction interval must be as wanted, not only the prediction.
    """

    model_config = pydantic.ConfigDict(extra="forbid")
    target: Number | str
    near: dict[str, Any] | Annotated[int, Field(ge=0, strict=True)]
    fixed: list[str] = []
    bounds: dict[str, tuple[Number | None, Number | None]] = {}
    constraints: Annotated[list[str], Field(max_length=_MAX_CONSTRAINTS)] = []
    n: Annotated[int, Field(ge=1, le=MAX_PROPOSALS)] = 5
    confidence: Confidence | None = None
    known: list[dict[str, Any]] = []

    @classmethod
    def parse(cls, content: object) -> SolveRequest:
        """Return the body of a request; raise `BadRequest` where it is not one."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            name, kind, message = [*first["loc"], "body"][0], first["type"], first["msg"]
            text = f": {message[0].lower()}{message[1:]}, not {short_repr(first['input'])}"
            if kind == "missing" and len(first["loc"]) == 1:
                text = " is needed"
            elif kind == "extra_forbidden":
                text = f" is unknown; use {join_names(list(cls.model_fields))}"
            raise BadRequest(f"{name!r}{text}.") from None


class Proposals(BaseModel):
    """Changed rows, the best first; where none reaches the target, the closest, and a warning.

    Each has its `columns`, their `changes`, the label of the nearest known case (`anchor`),
    `prediction`, `applicability`, the `distance` in the learned metric and whether the target is
    `reached`. With intervals, also `low`, `high` and, where a range is wanted, the `probability`
    that a measurement is in it.
    """

    proposals: list[dict[str, object]]
    warnings: list[str] = []


class Error(BaseModel):
    """The error in one sentence."""

    error: str


class _SchemaGenerator(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: object) -> bool:
        return False  # it would repeat the name


def openapi_description(name: str, target: str, schema: RequestSchema) -> Json:
    """Return the OpenAPI description of the service for a model with this input schema."""
    models = schema.model, SolveRequest, Predictions, Explanations, Proposals, Error
    _, definitions = models_json_schema(
        [(model, "validation") for model in models],
        ref_template="#/components/schemas/{model}",
        schema_generator=_SchemaGenerator,
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": f"Predictions of {target} ({name})", "version": __version__},
        "paths": json.loads(files("twinned.app.serve").joinpath("paths.json").read_text("utf-8")),
        "components": {"schemas": definitions["$defs"]},
    }
