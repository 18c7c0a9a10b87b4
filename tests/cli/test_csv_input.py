import math
import os
from pathlib import Path

import numpy as np
import pytest

from twinned.cli.csv_input import (
    check_output,
    first_missing,
    read_cells,
    read_numbers,
    read_target,
    table_to_fit,
    table_to_predict,
)
from twinned.persistence.archive import write_atomically


@pytest.fixture
def table(tmp_path):
    def write(content, separator=","):
        path = tmp_path / "table.csv"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content, encoding="utf-8", newline="")
        return read_cells(path, separator)

    return write


def whole(cells, categorical=()):
    return table_to_fit(cells, cells.names, categorical)


# --- opening ----------------------------------------------------------------------------------


def test_cells_and_the_lines_they_stand_on(table):
    cells = table('\ufeffa , b\r\n1,"two\r\nlines"\r\n\r\n 3 ,x\r\n')
    assert cells.names == ["a", "b"]
    assert cells.columns == [["1", "3"], ["two\r\nlines", "x"]]
    assert cells.lines == [2, 5]  # the quoted field takes two lines, the blank one is skipped


def test_a_row_of_empty_fields_is_a_row(table):
    assert table("a,b\n,\n1,2\n").columns == [["", "1"], ["", "2"]]


@pytest.mark.parametrize("separator", ["\t", "tab", "\\t"])
def test_tab_has_names(table, separator):
    assert table("a\tb\n1\t2\n", separator).names == ["a", "b"]


@pytest.mark.parametrize("separator", ["", ",,", '"', "\n"])
def test_a_separator_is_one_character(table, separator):
    with pytest.raises(ValueError, match="--separator must be one character"):
        table("a,b\n1,2\n", separator)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"a,b\n", "no rows"),
        (b"a,b\n1,2\n3\n", "line 3 has 1 fields, but line 1 names 2"),
        (b"a,b\n1,2,3\n", "line 2 has 3 fields"),
        (b"a,b,a\n1,2,3\n", "several columns of the name 'a'"),
        (b"a,b\n1,caf\xe9\n", "line 2 is not UTF-8 text \\(byte 0xe9\\)"),
        ("a,b\n1,2\n".encode("utf-16-le"), "not UTF-8"),
        (b"PK\x03\x04rest", "spreadsheet"),
        (b'a,b\n1,"2\n', "line 2 cannot be read as CSV"),
        (b"a;b\n1;2\n", "separated by ';': give --separator ';'"),
        (b"a\tb\n1\t2\n", "give --separator tab"),
    ],
)
def test_what_cannot_be_opened(table, content, message):
    with pytest.raises(ValueError, match=message):
        table(content)


def test_one_column_is_a_table_too(table):
    assert table("a\n1\n2\n").columns == [["1", "2"]]


def test_no_such_file_and_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_cells(tmp_path / "nothing.csv", ",")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        read_cells(tmp_path, ",")


def test_absent_columns_are_named_beside_the_present(table):
    cells = table("a,b\n1,2\n")
    cells.demand(["a"], "--drop")
    with pytest.raises(ValueError, match=r"no column 'c' \(--drop\); its columns are 'a', 'b'"):
        cells.demand(["a", "c"], "--drop")


def test_many_columns_are_not_all_listed(table):
    names = [f"c{j}" for j in range(50)]
    cells = table(",".join(names) + "\n" + ",".join("1" * 50) + "\n")
    with pytest.raises(ValueError, match="'c19' and 30 more"):
        cells.demand(["nope"], "--drop")


# --- numbers and names ------------------------------------------------------------------------


def test_kinds_of_columns(table):
    frame = whole(table("n,t,b,m\n1,red,True,\n2e3,blue,false,1\n-.5,red,TRUE,NA\n"))
    assert [str(kind) for kind in frame.dtypes] == ["float64", "category", "float64", "float64"]
    assert frame["n"].tolist() == [1, 2000, -0.5]
    assert frame["t"].tolist() == ["red", "blue", "red"]
    assert frame["b"].tolist() == [1, 0, 1]
    assert math.isnan(frame["m"][0])
    assert frame["m"][1] == 1
    assert math.isnan(frame["m"][2])


def test_a_missing_name_is_missing(table):
    assert whole(table("t,x\nred,1\nNA,2\n"))["t"].isna().tolist() == [False, True]


def test_text_in_a_number_column_shows_its_line(table):
    cells = table("a,b c\n1,1\n2,2\n3,oops\n4,4\n")
    with pytest.raises(ValueError, match="line 4, column 'b c': 'oops' is text") as refusal:
        whole(cells)
    assert "--categorical 'b c'" in str(refusal.value)  # ready for the shell
    assert whole(cells, ["b c"])["b c"].tolist() == ["1", "2", "oops", "4"]


def test_the_stranger_among_truths_is_shown(table):
    with pytest.raises(ValueError, match="line 3, column 'a': 'maybe' is text"):
        read_numbers(table("a\nTrue\nmaybe\n"), "a")
    with pytest.raises(ValueError, match="line 3, column 'a': 'True' is text"):
        read_numbers(table("a\n1\nTrue\n"), "a")


def test_half_of_the_distinct_values_decide(table):
    # one number among three texts: names; one among two: a number column with a mistake
    assert whole(table("t,x\na,0\nb,0\n7,0\n"))["t"].dtype == "category"
    with pytest.raises(ValueError, match="'a' is text in a number column"):
        whole(table("t,x\na,0\na,0\na,0\n7,0\n"))


def test_a_decimal_comma_is_recognised(table):
    with pytest.raises(ValueError, match=r"'1,5' is text.*decimal point"):
        whole(table("a;b\n1,5;1\n2,5;2\n", ";"))


@pytest.mark.parametrize("cell", ["<5", "> 0.1", "<=1e-3", "≥2,5"])
def test_a_limit_of_detection_is_recognised(table, cell):
    for others in ("1;0\n2;0\n3;0\n", f"3;0\n{cell}4;0\n"):
        with pytest.raises(ValueError, match=r"a limit; write a number for it.*--categorical a"):
            whole(table(f"a;b\n{cell};1\n{others}", ";"))
    # limits alone are names
    assert whole(table(f"a;b\n{cell};1\n{cell};2\n", ";"))["a"].dtype == "category"
    with pytest.raises(ValueError, match="half the limit; the target must be a number"):
        read_target(table(f"a;b\n{cell};1\n2;2\n", ";"), "a")


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e999"])
def test_infinity_is_refused(table, cell):
    with pytest.raises(ValueError, match=r"line 3, column 'a': .* not a finite number"):
        whole(table(f"a\n1\n{cell}\n"))


def test_an_identifier_is_refused_only_in_a_table_of_some_size(table):
    def rows(n):
        return "id,x\n" + "".join(f"row-{i},1\n" for i in range(n))

    assert whole(table(rows(20)))["id"].dtype == "category"
    cells = table(rows(21))
    with pytest.raises(ValueError, match="--drop id"):
        whole(cells)
    assert whole(cells, ["id"])["id"].nunique() == 21


def test_dates_are_refused(table):
    days = [f"2024-{month:02}-{day:02}" for month in (1, 2) for day in range(1, 16)]
    with pytest.raises(ValueError, match=r"'day' holds dates, such as '2024-01-01'.*--drop day"):
        whole(table("day,x\n" + "".join(f"{day},1\n{day},2\n" for day in days)))


def test_the_target_is_known_in_every_row(table):
    assert read_target(table("y\n1\n2\n"), "y").tolist() == [1, 2]
    with pytest.raises(ValueError, match="line 3, column 'y' has no value"):
        read_target(table("y,x\n1,1\n,1\n"), "y")
    with pytest.raises(ValueError, match=r"line 2, column 'y': 'low' is text .*the target must be"):
        read_target(table("y\nlow\nhigh\n"), "y")


def test_numbers_survive_exactly(table):
    values = np.random.default_rng(0).normal(size=50) * 10.0 ** np.arange(-25, 25)
    cells = table("x\n" + "\n".join(map(repr, values.tolist())) + "\n")
    np.testing.assert_array_equal(read_numbers(cells, "x"), values)


def test_python_spelling_of_numbers_is_not_a_number(table):
    with pytest.raises(ValueError, match="'1_000' is text"):
        read_numbers(table("x\n1_000\n"), "x")


def test_the_first_missing_value(table):
    cells = table("a,b\n1,2\n3,n/a\n,4\n")
    assert first_missing(cells, ["a", "b"]).endswith("line 3, column 'b'")
    assert first_missing(cells, ["a"]).endswith("line 4, column 'a'")
    assert first_missing(table("a\n1\n"), ["a"]) is None


def test_a_table_for_a_model_has_its_order_and_its_categories(table):
    cells = table("t,junk,n,code\nred,?,1,1\nnew,?,2,2.0\n,?,3,9\n")
    frame = table_to_predict(cells, ["n", "t", "code"], [None, ["blue", "red"], [1, 2]])
    assert list(frame.columns) == ["n", "t", "code"]
    assert frame["n"].tolist() == [1, 2, 3]
    assert frame["t"].tolist()[:2] == ["red", "new"]
    assert frame["t"].isna()[2]
    assert frame["code"].tolist() == [1, 2, "9"]  # the model's own numbers, and a stranger


# --- writing ----------------------------------------------------------------------------------


def test_where_output_cannot_go(tmp_path):
    source = tmp_path / "table.csv"
    source.write_text("a\n1\n")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        check_output(tmp_path, [])
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        check_output(tmp_path / "nowhere" / "out.csv", [])
    with pytest.raises(ValueError, match="would replace the input"):
        check_output(tmp_path / "." / "table.csv", [source])
    assert check_output(tmp_path / "out.csv", [source]) == (tmp_path / "out.csv").resolve()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_only_a_file_is_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="not a file that could be replaced"):
        check_output(tmp_path / "pipe", [])


def test_what_a_link_points_to_is_replaced(tmp_path):
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    write_atomically(check_output(tmp_path / "link.csv", []), b"new")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text() == "new"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "out.csv"
    write_atomically(path, b"old\n")

    def fail(self, target):
        raise OSError("no room")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no room"):
        write_atomically(path, b"new\n")
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]
