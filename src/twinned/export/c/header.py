"""The text of a C header, from its template `header.h.j2`: tables, constants and comments."""

from __future__ import annotations

import re
from importlib.resources import files
from textwrap import fill, indent
from typing import NamedTuple

import numpy as np
from jinja2 import Environment, StrictUndefined
from numpy.typing import ArrayLike

from twinned._version import __version__
from twinned.export.c.models import Core
from twinned.fitted.calibration import Calibration
from twinned.fitted.quantiles import suffices, tails
from twinned.rows.schema import CATEGORICAL, NUMERIC, Floats, TableSchema

PERCENTS = range(50, 100)  # confidences of intervals
_MAX_LISTED = 50  # categories of a feature that are listed


class IntervalTable(NamedTuple):
    """Ends of prediction intervals: mean + score · (std + floor), or mean + score."""

    low: Floats  # scores of the confidences from 50 to 99 %; infinite where unknown
    high: Floats
    floor: float
    is_constant: bool

    @classmethod
    def of(cls, calibration: Calibration | None) -> IntervalTable | None:
        """The ends by a calibration; None without, or where the width needs known rows."""
        if calibration is None:
            return None
        scale = calibration.scale
        if scale.width not in ("std", "constant") or scale.y_std is not None:
            return None
        ends = np.full((len(PERCENTS), 2), [-np.inf, np.inf])
        for i, percent in enumerate(PERCENTS):
            if suffices(percent / 100, calibration.n_rows):
                ends[i] = calibration.distribution.quantile(tails(percent / 100))
        is_constant = scale.width == "constant" or scale.floor == 0
        return cls(ends[:, 0], ends[:, 1], float(scale.floor), is_constant)


class ConstantTables:
    """Constant arrays of C, and the bytes that they take.

    Examples
    --------
    >>> tables = ConstantTables("twin")
    >>> print(tables.write("y", "float", [1.0, 2.5]))
    static const float twin_y[2] = {
        1.0f, 2.5f
    };
    <BLANKLINE>
    >>> tables.write("order", "uint", [300, 1]).split(" twin")[0], tables.n_bytes
    ('static const uint16_t', 12)
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.n_bytes: int = 0

    def write(self, name: str, ctype: str, values: ArrayLike) -> str:
        """A constant array; `uint` is the smallest unsigned type that holds the values."""
        flat = np.ravel(np.asarray(values))
        if ctype == "uint":
            ctype = next(f"uint{bits}_t" for bits in (8, 16, 32) if flat.max() < 2**bits)
        array = flat.astype("float32" if ctype == "float" else ctype.removesuffix("_t"))
        self.n_bytes += array.nbytes
        numbers = ", ".join(map(float_literal if ctype == "float" else str, array))
        lines = indent(fill(numbers, 92, break_on_hyphens=False), "    ")
        return f"static const {ctype} {self.prefix}_{name}[{len(array)}] = {{\n{lines}\n}};\n"


def write_header(
    name: str, core: Core, schema: TableSchema, feature_names: list[str], **values: object
) -> tuple[str, int]:
    """The text of the header, and the bytes of the tables that a prediction uses.

    `values` are further ones of the template: those that do not depend on the core.
    """
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    environment.filters |= {"literal": float_literal, "quoted": string_literal}
    template = files("twinned.export.c").joinpath("header.h.j2").read_text("utf-8")
    tables = ConstantTables(name)
    text = environment.from_string(template.replace("@", name)).render(
        core=core,
        columns=core.columns,
        tables=tables,
        table=tables.write,
        guard=name.upper(),
        names=feature_names,
        features=_describe_features(schema, feature_names),
        percents=PERCENTS,
        version=__version__,
        **values,
    )
    (flash_bytes,) = re.findall(r"_FLASH_BYTES (\d+)$", text, re.MULTILINE)
    return text, int(flash_bytes)


def _describe_features(schema: TableSchema, names: list[str]) -> list[str]:
    """One line for each feature: its name, and the codes of its categories."""
    lines = []
    for j, (name, kind) in enumerate(zip(names, schema.kinds, strict=True)):
        categories = schema.categories[j]
        text = f"x[{j}] {name}"
        if kind != NUMERIC:
            listed = [f"{code} = {value}" for code, value in enumerate(categories[:_MAX_LISTED])]
            text += f" ({kind}): {', '.join(listed)}"
            text += ", ..." if len(categories) > _MAX_LISTED else ""
        if kind == CATEGORICAL:
            text += f"; any other category: {len(categories)}"
        # ASCII text that neither ends a comment nor begins one
        text = re.sub(r"[\x00-\x1f\x7f]", " ", text.encode("ascii", "backslashreplace").decode())
        lines.append(text.replace("*/", "* /").replace("/*", "/ *"))
    return lines


def float_literal(value: float) -> str:
    """A constant of type float, exact to the last bit.

    >>> float_literal(2), float_literal(0.1), float_literal(1e-9), float_literal(float("inf"))
    ('2.0f', '0.1f', '1e-09f', 'INFINITY')
    """
    text = str(np.float32(value))  # the shortest text that is read as the same float
    special = {"nan": "NAN", "inf": "INFINITY", "-inf": "-INFINITY"}
    return special.get(text) or (f"{text}f" if set(text) & set(".e") else f"{text}.0f")


def string_literal(text: str) -> str:
    r"""A string constant of C, in UTF-8.

    >>> print(string_literal('a "quoted" ü'))
    "a \042quoted\042 \303\274"
    """
    plain = set(range(32, 127)) - set(b'"\\?')
    characters = [chr(byte) if byte in plain else f"\\{byte:03o}" for byte in text.encode()]
    return f'"{"".join(characters)}"'
