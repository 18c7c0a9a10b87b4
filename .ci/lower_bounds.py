"""Print the lowest versions that pyproject.toml allows, as constraints for pip.

Direct dependencies only, of the package and of its extras `test` and `boost`.
"""

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
EXTRAS = ("boost", "test")

requirements = [*PROJECT["dependencies"]]
for extra in EXTRAS:
    requirements += PROJECT["optional-dependencies"][extra]
bounds = [
    re.fullmatch(r"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)", requirement) for requirement in requirements
]
for requirement, bound in zip(requirements, bounds, strict=True):
    if bound is None:
        raise SystemExit(f"{requirement!r} in pyproject.toml has no lower bound of the form >=.")
print(*sorted({f"{bound[1]}=={bound[2]}" for bound in bounds}), sep="\n")
