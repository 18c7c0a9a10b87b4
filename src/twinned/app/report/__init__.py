"""HTML report of `twinned advise`: collect, then render.

`collect` turns a diagnosis into numbers and texts, `charts` draws them as SVG, and `render` writes
one HTML page.
"""

from twinned.app.report.collect import collect
from twinned.app.report.render import render

__all__ = ["collect", "render"]
