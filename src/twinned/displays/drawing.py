"""Axes of a display, options of its marks, and SVG elements for a page in light and dark modes."""

from __future__ import annotations

import io
import re
import warnings
from html import escape

GUIDE = {"color": "0.5", "linestyle": "--", "linewidth": 1.0, "zorder": 1}
_REPLACEMENTS = [
    (r' id="[A-Za-z0-9.]+_\d+"', ""),  # other charts have the same
    (r" font-family: [^;\"]*;", ""),  # the font is that of the page
    (r' transform="rotate\(-0 [^"]*"', ""),
    (r"\s*\n\s*", " "),
    ("xlink:href", "href"),
]
_COORDINATES, _DECIMALS = re.compile(r' [dxy]="[^"]*"'), re.compile(r"(\.\d)\d+")
_MARKER = re.compile(r"(?<=<use )([^>]*)/>")


def make_axes(ax, size=(6.0, 4.5)):
    """Return these axes, or those of a new figure of pyplot, which notebooks show."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=size, layout="constrained")[1]


def merge(defaults, given):
    """Return default options, replaced by those given; aliases of matplotlib count as the same.

    >>> merge({"color": "C0", "linewidth": 2.0}, {"c": "red"}) == {"c": "red", "linewidth": 2.0}
    True
    """
    given = given or {}
    aliases = {"color": "c", "linewidth": "lw", "linestyle": "ls", "markersize": "ms"}
    used = {name: value for name, value in defaults.items() if aliases.get(name) not in given}
    return {**used, **given}


def draw_svg(draw, description, size, style, colors):
    """Return a chart as an SVG element that a page adapts to its light and dark modes.

    Parameters
    ----------
    draw : callable
        Draws into axes, and returns a list of (artist, texts): a text for each marker of the
        artist, which is shown when the pointer is on it.
    description : str
        Text for screen readers.
    size : tuple of int
        Width and height in pixels.
    style : path
        Style sheet of matplotlib.
    colors : dict
        Colors of the chart, as #808080, and what replaces them, as var(--soft).
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    width, height = size
    with rc_context(fname=style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the browser may have the font
        figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
        tooltips = draw(figure.subplots())
        for i, (artist, _) in enumerate(tooltips):
            artist.set_gid(f"tooltips-{i}")
        file = io.StringIO()
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=no_metadata)
    svg = file.getvalue().partition("</defs>")[2]  # after the style for all elements of the page
    svg = re.sub("#[0-9a-f]{6}", lambda color: colors.get(color[0], color[0]), svg)
    for pattern, replacement in _REPLACEMENTS:
        svg = re.sub(pattern, replacement, svg)
    svg = _COORDINATES.sub(lambda attribute: _DECIMALS.sub(r"\1", attribute[0]), svg)
    for i, (_, texts) in enumerate(tooltips):
        svg = _add_tooltips(svg, f"tooltips-{i}", texts)
    label = escape(description)
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{svg}'


def _add_tooltips(svg, group, texts):
    """Return a chart with a title in each marker of a group."""
    before, _, after = svg.partition(f'<g id="{group}">')
    titles = [f"><title>{escape(text)}</title></use>" for text in texts]
    if titles:
        after = _MARKER.sub(lambda marker: marker[1] + titles.pop(0), after, count=len(titles))
    return f"{before}<g>{after}"
