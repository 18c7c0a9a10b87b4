"""The C header of a model: documentation, tables, functions and a self-test."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.export.c.columns import Singles
from twinned.export.c.core import SUM, Core
from twinned.export.c.source import CSource, float_literal
from twinned.rows.schema import CATEGORICAL, NUMERIC, TableSchema

FIRST_PERCENT, LAST_PERCENT = 50, 99
_MAX_LISTED = 50  # categories of a feature that are listed


class Comparables(NamedTuple):
    """What the nearest anchor of a row is computed from."""

    rows: NDArray[np.intp]  # (anchor,) rows of the training table
    center: Singles  # (column,), in place of a missing value
    scale: Singles  # (column,), by which columns are multiplied


class IntervalTable(NamedTuple):
    """Half-widths of prediction intervals: factor · (std + floor), or factor alone."""

    factors: NDArray[np.float64]  # of the confidences from 50 to 99 %; infinite where unknown
    floor: float
    is_constant: bool


class HeaderParts(NamedTuple):
    """What a header is written from."""

    description: list[str]
    schema: TableSchema
    feature_names: list[str]
    comparables: Comparables | None
    intervals: IntervalTable | None
    test_rows: Singles  # (row, feature)
    expected: NDArray[np.float64]  # (row,)
    tolerance: float


def write_header(core: Core, name: str, parts: HeaderParts) -> tuple[str, int]:
    """The text of the header, and the bytes of the tables that a prediction uses."""
    source = CSource(name)
    source.code(SUM)
    core.write(source)
    source.code(_predictions(core))
    flash_bytes = source.table_bytes
    _write_interval(source, parts.intervals)
    _write_comparables(source, core, parts.comparables, len(parts.feature_names))
    _write_names(source, parts.feature_names)
    _write_self_test(source, parts)
    guard = f"{name.upper()}_H"
    n_anchors = 0 if parts.comparables is None else len(parts.comparables.rows)
    defines = {
        "N_FEATURES": len(parts.feature_names),
        "N_ANCHORS": n_anchors,
        "FLASH_BYTES": flash_bytes,
        "RAM_BYTES": core.ram_bytes,
    }
    lines = [_comment(name, parts), f"#ifndef {guard}", f"#define {guard}", ""]
    lines += ["#include <math.h>", "#include <stdint.h>", ""]
    lines += [f"#define {name.upper()}_{key} {value}" for key, value in defines.items()]
    return "\n".join([*lines, "", source.text, f"#endif /* {guard} */", ""]), flash_bytes


def _comment(name: str, parts: HeaderParts) -> str:
    """The documentation at the top."""
    lines = [
        *parts.description,
        "",
        f"float {name}_predict(const float *x): the prediction of a row of "
        f"{len(parts.feature_names)} features.",
        f"float {name}_predict_std(const float *x): its raw standard deviation.",
        f"int {name}_interval(const float *x, int percent, float *lower, float *upper): a "
        "prediction",
        f"  interval of {FIRST_PERCENT} to {LAST_PERCENT} %; returns 0, or 1 where it is not "
        "calibrated.",
        f"int {name}_nearest_anchor(const float *x): the anchor most like x, or -1 without "
        "anchors;",
        f"  {name}_anchor_row(i) is its row in the training table, {name}_anchor_y(i) its value.",
        f"int {name}_self_test(void): 0, or the number of test rows that are predicted wrongly.",
        "",
        "Features of x, in this order. NAN is a missing value; categories are given by codes.",
    ]
    for j, (feature, kind) in enumerate(zip(parts.feature_names, parts.schema.kinds, strict=True)):
        known = parts.schema.categories[j]
        text = f"x[{j}] {feature}"
        if kind != NUMERIC:
            listed = ", ".join(
                f"{code} = {value}" for code, value in enumerate(known[:_MAX_LISTED])
            )
            text += f" ({kind}): {listed}" + (", ..." if len(known) > _MAX_LISTED else "")
        if kind == CATEGORICAL:
            text += f"; any other category: {len(known)}"
        lines.append("  " + text)
    body = "\n".join(f" * {_comment_text(line)}".rstrip() for line in lines)
    return f"/*\n{body}\n */"


def _comment_text(text: str) -> str:
    """ASCII text that neither ends a comment nor begins one."""
    ascii_text = text.encode("ascii", "backslashreplace").decode()
    return re.sub(r"[\x00-\x1f\x7f]", " ", ascii_text).replace("*/", "* /").replace("/*", "/ *")


def string_literal(text: str) -> str:
    r"""A string constant of C, in UTF-8.

    >>> print(string_literal('a "quoted" ü'))
    "a \"quoted\" \303\274"
    """
    plain = set(range(32, 127)) - set(b'"\\?')
    escapes = {ord('"'): '\\"', ord("\\"): "\\\\"}
    parts = [
        chr(byte) if byte in plain else escapes.get(byte, f"\\{byte:03o}") for byte in text.encode()
    ]
    return f'"{"".join(parts)}"'


def _predictions(core: Core) -> str:
    center, unit = float_literal(core.center), float_literal(core.unit)
    return f"""
/* The prediction of a row, and its raw standard deviation where std is not 0. */
static inline float @_predict_both(const float *x, float *std)
{{
    @_sum sum = {{0.0f, 0.0f, 0.0f}};
    @_moments(x, &sum);
    if (std != 0) {{
        *std = {unit} * sqrtf(sum.squares > 0.0f ? sum.squares / sum.weight : sum.squares);
    }}
    return {center} + {unit} * sum.mean;
}}

static inline float @_predict(const float *x)
{{
    return @_predict_both(x, 0);
}}

static inline float @_predict_std(const float *x)
{{
    float std;
    (void)@_predict_both(x, &std);
    return std;
}}
"""


def _write_interval(source: CSource, intervals: IntervalTable | None) -> None:
    signature = (
        "static inline int @_interval(const float *x, int percent, float *lower, float *upper)"
    )
    if intervals is None:
        source.code(f"""
/* There is no calibration. */
{signature}
{{
    (void)percent;
    *lower = *upper = @_predict(x);
    return 1;
}}
""")
        return
    source.table("@_interval_factors", "float", intervals.factors)
    scale = "1.0f" if intervals.is_constant else f"std + {float_literal(intervals.floor)}"
    source.code(f"""
{signature}
{{
    float std, half;
    const float mean = @_predict_both(x, &std);
    if (percent < {FIRST_PERCENT} || percent > {LAST_PERCENT}) {{
        *lower = *upper = mean;
        return 1;
    }}
    half = @_interval_factors[percent - {FIRST_PERCENT}] * ({scale});
    *lower = mean - half;
    *upper = mean + half;
    return isinf(half) ? 1 : 0;
}}
""")


def _write_comparables(
    source: CSource, core: Core, comparables: Comparables | None, n_features: int
) -> None:
    if comparables is None:
        source.code("""
static inline int @_nearest_anchor(const float *x) { (void)x; return -1; }
static inline long @_anchor_row(int i) { (void)i; return -1; }
static inline float @_anchor_y(int i) { (void)i; return NAN; }
""")
        return
    n_columns, n_used = len(core.columns), len(comparables.center)
    source.table("@_metric_center", "float", comparables.center)
    source.table("@_metric_scale", "float", comparables.scale)
    source.table("@_anchor_rows", "int32_t", comparables.rows)
    center, unit = float_literal(core.center), float_literal(core.unit)
    source.code(f"""
static inline float @_metric_value(const float *columns, int i)
{{
    const float value = (columns[i] - @_metric_center[i]) * @_metric_scale[i];
    return value == value ? value : 0.0f;
}}

/* The anchor nearest to x in the learned metric. */
static inline int @_nearest_anchor(const float *x)
{{
    float query[{n_columns}], anchor[{n_columns}], least = INFINITY;
    int i, j, nearest = 0;
    @_encode(x, query);
    for (j = 0; j < {len(comparables.rows)}; j++) {{
        float squares = 0.0f;
        @_encode(@_anchors + {n_features} * j, anchor);
        for (i = 0; i < {n_used}; i++) {{
            const float apart = @_metric_value(query, i) - @_metric_value(anchor, i);
            squares += apart * apart;
        }}
        if (squares < least) {{
            least = squares;
            nearest = j;
        }}
    }}
    return nearest;
}}

/* The row of an anchor in the training table, or -1 where it was added later. */
static inline long @_anchor_row(int i)
{{
    return (long)@_anchor_rows[i];
}}

static inline float @_anchor_y(int i)
{{
    return {center} + {unit} * @_anchor_estimates[i];
}}
""")


def _write_names(source: CSource, names: list[str]) -> None:
    listed = ",\n        ".join(string_literal(name) for name in names)
    source.code(f"""
static inline const char *@_feature_name(int i)
{{
    static const char *const names[{len(names)}] = {{
        {listed}
    }};
    return names[i];
}}
""")


def _write_self_test(source: CSource, parts: HeaderParts) -> None:
    n_rows, n_features = parts.test_rows.shape
    source.table("@_test_rows", "float", parts.test_rows)
    source.table("@_test_values", "float", parts.expected)
    source.code(f"""
static inline int @_self_test(void)
{{
    int i, failed = 0;
    for (i = 0; i < {n_rows}; i++) {{
        const float error = @_predict(@_test_rows + {n_features} * i) - @_test_values[i];
        if (!(fabsf(error) <= {float_literal(parts.tolerance)})) {{
            failed++;
        }}
    }}
    return failed;
}}
""")
