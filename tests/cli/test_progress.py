"""The progress bar of the commands."""

import pytest

from twinned.app.cli.messages import progress_bar, progress_lines


@pytest.mark.parametrize("total", [None, 2])
def test_progress_is_shown_in_a_terminal_only(total, monkeypatch, capsys):
    for is_terminal in (False, True):
        monkeypatch.setenv("TTY_COMPATIBLE", str(int(is_terminal)))
        with progress_bar(total) as begin_step:
            begin_step("first fold")
        out, err = capsys.readouterr()
        assert out == ""
        assert ("first fold" in err) if is_terminal else (err == "")


@pytest.mark.parametrize("is_terminal", [False, True])
def test_lines_of_a_fit_are_shown_on_stderr(is_terminal, monkeypatch, capsys):
    monkeypatch.setenv("TTY_COMPATIBLE", str(int(is_terminal)))
    with progress_lines() as begin_step:
        begin_step("fitting")
        print("ridge: RMSE 1.2")
    out, err = capsys.readouterr()
    assert out == ""
    assert "fitting" in err
    assert "ridge: RMSE 1.2" in err
    print("after")
    assert capsys.readouterr().out == "after\n"
