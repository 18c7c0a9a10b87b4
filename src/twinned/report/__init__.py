"""The page that `twinned advise` writes: facts first, then rendering.

`facts` collects everything that the page says, as plain numbers and texts; `charts` draws lines and
points as SVG that follows the page's colours; `render` puts both into one file.
"""

from twinned.report.facts import collect
from twinned.report.render import render

__all__ = ["collect", "render"]
