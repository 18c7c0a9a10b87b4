"""Text of a C header: tables of constants, functions, and the bytes of the tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TYPES = {
    "float": np.float32,
    "int16_t": np.int16,
    "int32_t": np.int32,
    "uint8_t": np.uint8,
    "uint16_t": np.uint16,
    "uint32_t": np.uint32,
}
_LINE = 96  # characters of a line of numbers


class CSource:
    """Builder of the text of a C header.

    In names and in code, `@` stands for the prefix of all names of the header.

    Parameters
    ----------
    name : str
        The prefix.

    Examples
    --------
    >>> source = CSource("twin")
    >>> source.table("@_y", "float", [1.0, 2.5])
    >>> source.code("static inline float @_first(void) { return @_y[0]; }")
    >>> print(source.text)
    static const float twin_y[2] = {
        1.0f, 2.5f
    };
    <BLANKLINE>
    static inline float twin_first(void) { return twin_y[0]; }
    <BLANKLINE>
    >>> source.table_bytes
    8
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.table_bytes = 0
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        return "\n".join(self._parts).replace("@", self.name)

    def table(self, name: str, ctype: str, values: Any) -> None:
        """Add a constant array; an empty one gets a single 0, which C requires."""
        array: NDArray[Any] = np.ravel(np.asarray(values, dtype=_TYPES[ctype]))
        if not len(array):
            array = np.zeros(1, dtype=_TYPES[ctype])
        numbers = map(_float_literal, array) if ctype == "float" else map(str, array.tolist())
        self.table_bytes += array.nbytes
        self._parts.append(
            f"static const {ctype} {name}[{len(array)}] = {{\n{_wrapped(numbers)}\n}};\n"
        )

    def code(self, text: str) -> None:
        """Add lines of C."""
        self._parts.append(text.strip("\n") + "\n")


def smallest_unsigned(largest: int) -> str:
    """The smallest unsigned type of C that holds an integer.

    >>> smallest_unsigned(255), smallest_unsigned(256), smallest_unsigned(70_000)
    ('uint8_t', 'uint16_t', 'uint32_t')
    """
    return next(f"uint{bits}_t" for bits in (8, 16, 32) if largest < 2**bits)


def float_literal(value: float) -> str:
    """A constant of type float, exact to the last bit.

    >>> float_literal(2), float_literal(0.1), float_literal(1e-9), float_literal(float("inf"))
    ('2.0f', '0.1f', '1e-09f', 'INFINITY')
    """
    return _float_literal(np.float32(value))


def _float_literal(value: np.float32) -> str:
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = str(value)  # the shortest text that is read as the same float
    return f"{text}f" if set(text) & set(".e") else f"{text}.0f"


def _wrapped(numbers: Iterable[str]) -> str:
    """Numbers separated by commas, in lines of bounded length."""
    lines, line = [], "   "
    for number in numbers:
        if len(line) + len(number) + 2 > _LINE:
            lines.append(line)
            line = "   "
        line += f" {number},"
    return "\n".join([*lines, line]).removesuffix(",")
