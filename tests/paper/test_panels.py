"""Panels: lines that are printed above a panel cover no curve."""

import pandas as pd
import pytest

from paper.panels import Panels


@pytest.fixture
def panels():
    rows = [("TF", split, x, 1.0 / x) for split in range(2) for x in (1, 2, 4)]
    drawn = Panels(["TF", "YH"], "title", "x", "y")
    drawn.draw_curve(pd.DataFrame(rows, columns=["dataset", "split", "x", "value"]), "curve")
    drawn.clip_above({"TF": 0.7})
    return drawn


def test_the_title_has_texts_before_and_after(panels):
    panels.add_to_title("Figure 2 of the paper (A)", "as published")
    assert panels.figure.get_suptitle() == "Figure 2 of the paper (A): title, as published"


def test_notes_are_between_title_and_panel(panels):
    panels.figure.draw_without_rendering()
    axis = panels.axes["TF"]
    panel, title = axis.get_window_extent(), axis._left_title.get_window_extent()
    (text,) = axis.texts
    assert text.get_text() == "above: 1 at 1"
    note = text.get_window_extent()
    assert panel.y1 < note.y0
    assert note.y1 <= title.y0
    assert note.x1 < panel.x1


def test_titles_with_notes_look_like_others(panels):
    first, second = (axis._left_title for axis in panels.axes.values())
    assert first.get_fontproperties() == second.get_fontproperties()
    assert first.get_text() == "Test Function (TF)"


def test_caps_of_error_bars_are_no_points_above_a_panel():
    drawn = Panels(["TF"], "title", "x", "y")
    rows = [("TF", split, 1, float(split)) for split in range(2)]
    drawn.draw_curve(pd.DataFrame(rows, columns=["dataset", "split", "x", "value"]), "one point")
    drawn.clip_above({"TF": 0.6})  # the point is at 0.5, the cap at 0.85
    assert not drawn.axes["TF"].texts
