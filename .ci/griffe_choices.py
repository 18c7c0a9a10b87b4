"""Extension of griffe: what it reads otherwise than the source says it.

Of `effort : {"fast", "balanced"}, default="balanced"`, griffe shows the first choice. Annotations
are those at run time, where `ArrayLike` is a union of ten types, and an array has its own.
"""

import re
from typing import Any

import griffe

ARRAY_LIKE = re.compile(
    r"(?:typing\.)?Union\[numpy\._typing.*?complex \| bytes \| str\]((?:, [^\[\],]+)*)\]"
)
ARRAY = re.compile(r"numpy\.ndarray\[tuple\[typing\.Any, \.\.\.\], numpy\.dtype\[[^\]]*\]\]")


class Choices(griffe.Extension):
    """Reads `{"a", "b"}, default="b"` as a type and a default, and shortens annotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"(?m)^(\w+(?:, \w+)* : )(\{.+\}.*, default=)", r"\1one of \2", obj.docstring.value
            )
        if isinstance(obj, griffe.Function):
            obj.returns = shorten(obj.returns)
            for parameter in obj.parameters:
                parameter.annotation = shorten(parameter.annotation)


def shorten(annotation: Any) -> Any:
    """Return an annotation with the names of types of arrays."""
    text = ARRAY.sub("ndarray", str(annotation))
    text = ARRAY_LIKE.sub(lambda found: "ArrayLike" + found[1].replace(", ", " | "), text)
    return annotation if text == str(annotation) else text.replace("NoneType", "None")
