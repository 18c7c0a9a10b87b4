"""Check that a tag is the version of the package, of its citation, recipe and change log.

python .ci/check_tag.py v0.1.0
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# file → what stands before the version, and what may follow it
PLACES = {
    "src/twinned/_version.py": '__version__ = "{}"\n',
    "CITATION.cff": "\nversion: {}\n",
    "CHANGELOG.md": r"\n## {} \(\d{{4}}-\d\d-\d\d\)\n",
    "conda/recipe.yaml": "\n  version: {}\n",
}
version = re.escape(sys.argv[1].removeprefix("v"))
wrong = [
    path
    for path, text in PLACES.items()
    if not re.search(text.format(version), (ROOT / path).read_text(encoding="utf-8"))
]
if wrong:
    raise SystemExit(f"{sys.argv[1]} is not the version, with its date, of {', '.join(wrong)}.")
