"""The OpenAPI description of the service."""

from __future__ import annotations

from typing import Any

from twinned._version import __version__
from twinned.serve.requests import MAX_ROWS, RequestSchema

Json = dict[str, Any]
_ERROR_STATUSES = ("400", "413", "422")
_CONFIDENCE = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}


def openapi_description(name: str, schema: RequestSchema) -> Json:
    """Return the OpenAPI description of the service for a model with this input schema."""
    rows = _json_body(schema)
    number_lists = {
        column: {"type": "array", "items": {"type": "number"}}
        for column in ("prediction", "std", "low", "high")
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": f"twinned: {name}", "version": __version__},
        "paths": {
            "/about": {
                "get": {
                    "summary": "The input columns of the model",
                    "responses": _success({"type": "object"}),
                }
            },
            "/predict": {
                "post": {
                    "summary": "Predictions and raw standard deviations of all rows; with a "
                    "confidence also prediction intervals, where the model stores them",
                    "requestBody": rows,
                    "responses": _success({"type": "object", "properties": number_lists})
                    | _errors(),
                }
            },
            "/explain": {
                "post": {
                    "summary": "The comparable known cases of each row",
                    "requestBody": rows,
                    "responses": _success({"type": "object"}) | _errors(),
                }
            },
            "/batch": {
                "post": {
                    "summary": "A CSV table with a header line, returned with its predictions",
                    "parameters": [{"name": "confidence", "in": "query", "schema": _CONFIDENCE}],
                    "requestBody": _content({"type": "string"}, "text/csv") | {"required": True},
                    "responses": _success({"type": "string"}, "text/csv") | _errors(),
                }
            },
        },
    }


def _json_body(schema: RequestSchema) -> Json:
    properties = {
        feature.name: {"type": "number"} if feature.labels is None else {"enum": feature.labels}
        for feature in schema.features
    }
    row = {"type": "object", "properties": properties, "required": list(properties)}
    rows = {"type": "array", "items": row, "minItems": 1, "maxItems": MAX_ROWS}
    body = {
        "type": "object",
        "properties": {"rows": rows, "confidence": _CONFIDENCE},
        "required": ["rows"],
        "additionalProperties": False,
    }
    return _content(body) | {"required": True}


def _content(schema: Json, media_type: str = "application/json") -> Json:
    return {"content": {media_type: {"schema": schema}}}


def _success(schema: Json, media_type: str = "application/json") -> Json:
    return {"200": {"description": "The result.", **_content(schema, media_type)}}


def _errors() -> Json:
    message = {"type": "object", "properties": {"error": {"type": "string"}}}
    response = {"description": "The error in one sentence.", **_content(message)}
    return dict.fromkeys(_ERROR_STATUSES, response)
