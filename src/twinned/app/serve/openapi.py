"""The OpenAPI description of the service."""

from __future__ import annotations

from typing import Any

from twinned._version import __version__
from twinned.app.serve.inputs import InputDate, InputFeature
from twinned.app.serve.schema import MAX_ROWS, RequestSchema
from twinned.fitted.applicability import LABELS

Json = dict[str, Any]
_JSON, _CSV = "application/json", "text/csv"
_EXCEL = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
WARNINGS_HEADER = "X-Twinned-Warnings"  # of a CSV response: a JSON list in ASCII
_WARNINGS = {"type": "array", "items": {"type": "string"}}
_CONFIDENCE = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}


def openapi_description(name: str, schema: RequestSchema) -> Json:
    """Return the OpenAPI description of the service for a model with this input schema."""
    rows = _rows_schema(schema)
    columns = {
        column: {"type": "array", "items": {"type": "number"}}
        for column in ("prediction", "std", "low", "high")
    }
    labels = {"type": "array", "items": {"type": "string", "enum": list(LABELS)}}
    predict = _post(
        "Predictions and raw standard deviations of all rows; with a confidence also prediction "
        "intervals, where the model stores them, and whether a row is inside, at the edge or "
        "outside of the known cases",
        rows,
        {
            "type": "object",
            "properties": columns | {"applicability": labels, "warnings": _WARNINGS},
        },
    )
    explain = _post(
        "The comparable known cases of each row, their share of the weight of the prediction, and "
        "whether the row is inside, at the edge or outside of the known cases",
        rows,
        {"type": "object", "properties": {"warnings": _WARNINGS}},
    )
    text = {"type": "string"}
    batch = _post(
        "A table with the names of columns in its first row, returned as CSV with predictions",
        text,
        text,
        _CSV,
    )
    batch["requestBody"]["content"][_EXCEL] = {}
    header = {"description": "A JSON list of warnings, if there are any.", "schema": text}
    batch["responses"]["200"]["headers"] = {WARNINGS_HEADER: header}
    batch["parameters"] = [{"name": "confidence", "in": "query", "schema": _CONFIDENCE}]
    about = {
        "summary": "The input columns of the model",
        "responses": {"200": _content("The result.", {"type": "object"})},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": f"twinned: {name}", "version": __version__},
        "paths": {
            "/about": {"get": about},
            "/predict": {"post": predict},
            "/explain": {"post": explain},
            "/batch": {"post": batch},
        },
    }


def _rows_schema(schema: RequestSchema) -> Json:
    properties = {own.name: _input_schema(own, own.name in schema.limits) for own in schema.inputs}
    row = {"type": "object", "properties": properties, "required": list(properties)}
    rows = {"type": "array", "items": row, "minItems": 1, "maxItems": MAX_ROWS}
    return {
        "type": "object",
        "properties": {"rows": rows, "confidence": _CONFIDENCE},
        "required": ["rows"],
        "additionalProperties": False,
    }


def _input_schema(feature: InputFeature | InputDate, with_limits: bool) -> Json:
    """A date, a number, or a category; new ones are possible unless they are ordered levels."""
    if isinstance(feature, InputDate):
        example = "2024-01-31T12:30" if feature.has_time else "2024-01-31"
        return {"type": "string", "examples": [example]}
    if feature.labels is None:
        return {"type": ["number", "string"] if with_limits else "number"}
    known: Json = {"enum": feature.labels}
    return known if feature.ordered else {"anyOf": [known, {"type": "string"}]}


def _post(summary: str, request: Json, response: Json, media_type: str = _JSON) -> Json:
    error = {"type": "object", "properties": {"error": {"type": "string"}}}
    responses = dict.fromkeys(("400", "413", "422"), _content("The error in one sentence.", error))
    return {
        "summary": summary,
        "requestBody": {"required": True, **_content("The input.", request, media_type)},
        "responses": {"200": _content("The result.", response, media_type), **responses},
    }


def _content(description: str, schema: Json, media_type: str = _JSON) -> Json:
    return {"description": description, "content": {media_type: {"schema": schema}}}
