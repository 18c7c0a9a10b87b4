"""Matplotlib axes of a display, and options of its marks."""

from __future__ import annotations

GUIDE = {"color": "0.5", "linestyle": "--", "linewidth": 1.0, "zorder": 1}


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
