"""Extension of griffe: defaults of parameters with choices are those of the docstring.

Of `effort : {"fast", "balanced"}, default="balanced"`, griffe shows the first choice.
"""

import re
from typing import Any

import griffe


class Choices(griffe.Extension):
    """Reads `{"a", "b"}, default="b"` as a type and a default."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"(?m)^(\w+(?:, \w+)* : )(\{.+\}.*, default=)", r"\1one of \2", obj.docstring.value
            )
