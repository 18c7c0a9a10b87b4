"""Reading of tables: columns, types, and errors that name the line."""

import math
import os
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_real_files import excel
from twinned.app.cli.options import check_output_path
from twinned.app.tables.columns import numeric_column, target_column
from twinned.app.tables.frames import (
    first_missing,
    prediction_frame,
    source_columns,
    training_frame,
)
from twinned.app.tables.reader import ReadOptions, read_table
from twinned.persistence.archive import write_atomically


@pytest.fixture
def table(tmp_path):
    def write(content, separator=None):
        path = tmp_path / "table.csv"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content, encoding="utf-8", newline="")
        return read_table(path, ReadOptions(separator=separator))

    return write


def to_frame(csv_table, categorical=()):
    kinds = dict.fromkeys(categorical, "categorical")
    return training_frame(csv_table, csv_table.names, kinds)[0]


# --- reading ----------------------------------------------------------------------------------


def test_columns_and_line_numbers(table):
    csv_table = table('\ufeffa , b\r\n1,"two\r\nlines"\r\n\r\n 3 ,x\r\n')
    assert csv_table.names == ["a", "b"]
    assert csv_table.columns == [["1", "3"], ["two\r\nlines", "x"]]
    assert csv_table.lines == [2, 5]  # the quoted field spans two lines, the blank line is skipped


def test_a_row_of_empty_fields_is_a_row_except_at_the_end(table):
    assert table("a,b\n,\n1,2\n,\n,\n").columns == [["", "1"], ["", "2"]]


@pytest.mark.parametrize("separator", ["\t", "tab", "\\t"])
def test_spellings_of_tab(table, separator):
    assert table("a\tb\n1\t2\n", separator).names == ["a", "b"]


@pytest.mark.parametrize("separator", ["", ",,", '"', "\n"])
def test_separator_must_be_one_character(table, separator):
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
        (b"a;b\n1,2\n", "line 2 has 1 fields, but line 1 names 2"),
        (b"a,b,a\n1,2,3\n", "several columns of the name 'a'"),
        (b'a,b\n1,"2\n', "line 2 cannot be read as CSV"),
        (b"1,2\n3,4\n", "line 1 holds numbers such as '1'"),
    ],
)
def test_unreadable_files_are_refused(table, content, message):
    with pytest.raises(ValueError, match=message):
        table(content)


def test_one_column_is_a_table(table):
    assert table("a\n1\n2\n").columns == [["1", "2"]]


def test_missing_file_and_folder_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="No such file"):
        read_table(tmp_path / "nothing.csv")
    with pytest.raises(IsADirectoryError, match="Is a directory"):
        read_table(tmp_path)


def test_absent_columns_are_reported_with_the_present_ones(table):
    csv_table = table("a,b\n1,2\n")
    csv_table.require(["a"], "--drop")
    with pytest.raises(ValueError, match=r"no column 'c' \(--drop\); its columns are 'a', 'b'"):
        csv_table.require(["a", "c"], "--drop")


def test_long_lists_of_columns_are_shortened(table):
    names = [f"c{j}" for j in range(50)]
    csv_table = table(",".join(names) + "\n" + ",".join("1" * 50) + "\n")
    with pytest.raises(ValueError, match="'c19' and 30 more"):
        csv_table.require(["nope"], "--drop")


# --- numeric and categorical columns ----------------------------------------------------------


def test_numeric_categorical_boolean_and_missing(table):
    frame = to_frame(table("n,t,b,m\n1,red,True,\n2e3,blue,false,1\n-.5,red,TRUE,NA\n"))
    assert [str(kind) for kind in frame.dtypes] == ["float64", "category", "float64", "float64"]
    assert frame["n"].tolist() == [1, 2000, -0.5]
    assert frame["t"].tolist() == ["red", "blue", "red"]
    assert frame["b"].tolist() == [1, 0, 1]
    assert math.isnan(frame["m"][0])
    assert frame["m"][1] == 1
    assert math.isnan(frame["m"][2])


def test_missing_category(table):
    assert to_frame(table("t,x\nred,1\nNA,2\n"))["t"].isna().tolist() == [False, True]


def test_text_in_a_numeric_column_shows_its_line(table):
    csv_table = table("a,b c\n1,1\n2,2\n3,oops\n4,4\n")
    with pytest.raises(ValueError, match="line 4, column 'b c': 'oops' is text") as refusal:
        to_frame(csv_table)
    assert "--categorical 'b c'" in str(refusal.value)  # ready for the shell
    assert to_frame(csv_table, ["b c"])["b c"].tolist() == ["1", "2", "oops", "4"]


def test_text_among_booleans_is_shown(table):
    with pytest.raises(ValueError, match="line 3, column 'a': 'maybe' is text"):
        numeric_column(table("a\nTrue\nmaybe\n"), "a")
    with pytest.raises(ValueError, match="line 3, column 'a': 'True' is text"):
        numeric_column(table("a\n1\nTrue\n"), "a")


def test_a_column_is_numeric_if_half_of_its_distinct_values_are(table):
    # one number among three values: categorical; one among two: numeric with an error
    assert to_frame(table("t,x\na,0\nb,0\n7,0\n"))["t"].dtype == "category"
    with pytest.raises(ValueError, match="'a' is text in a numeric column"):
        to_frame(table("t,x\na,0\na,0\na,0\n7,0\n"))


@pytest.mark.parametrize("cell", ["<5", "> 0.1", "<=1e-3", "≥2,5"])
def test_limits_alone_are_categories_and_bounds_of_a_target(table, cell):
    assert to_frame(table(f"a;b\n{cell};1\n{cell};2\n", ";"))["a"].dtype == "category"
    lower, upper = target_column(table(f"a;b\n{cell};1\n2;2\n", ";"), "a")
    limit = {"<5": 5.0, "> 0.1": 0.1, "<=1e-3": 1e-3, "≥2,5": 2.5}[cell]
    assert (lower[0], upper[0]) == ((-np.inf, limit) if cell[0] == "<" else (limit, np.inf))
    assert (lower[1], upper[1]) == (2.0, 2.0)


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e999"])
def test_infinity_is_refused(table, cell):
    with pytest.raises(ValueError, match=r"line 3, column 'a': .* not a finite number"):
        to_frame(table(f"a\n1\n{cell}\n"))


def test_identifiers_are_not_used_except_in_small_tables(table):
    def rows(n):
        return "id,x\n" + "".join(f"row-{i},1\n" for i in range(n))

    assert to_frame(table(rows(20)))["id"].dtype == "category"
    csv_table = table(rows(21))
    assert list(to_frame(csv_table).columns) == ["x"]
    assert to_frame(csv_table, ["id"])["id"].nunique() == 21


def test_target_needs_a_number_in_every_row(table):
    assert target_column(table("y\n1\n2\n"), "y").limits().tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"line 3, column 'y': 'low' is text .*the target must be"):
        target_column(table("y\n1\nlow\n2\n"), "y")
    with pytest.raises(
        ValueError, match="column 'y' holds text such as 'low', 'high'; the --target"
    ):
        target_column(table("y\nlow\nhigh\n"), "y")


def test_numbers_are_parsed_exactly(table):
    values = np.random.default_rng(0).normal(size=50) * 10.0 ** np.arange(-25, 25)
    csv_table = table("x\n" + "\n".join(map(repr, values.tolist())) + "\n")
    np.testing.assert_array_equal(numeric_column(csv_table, "x")[0], values)


def test_underscores_are_not_part_of_a_number(table):
    with pytest.raises(ValueError, match="'1_000' is text"):
        numeric_column(table("x\n1_000\n"), "x")


def test_first_missing_value(table):
    csv_table = table("a,b\n1,2\n3,n/a\n,4\n")
    assert first_missing(csv_table, to_frame(csv_table)).endswith("line 3, column 'b'")
    assert first_missing(csv_table, to_frame(csv_table)[["a"]]).endswith("line 4, column 'a'")
    csv_table = table("a\n1\n")
    assert first_missing(csv_table, to_frame(csv_table)) is None


def test_prediction_frame_has_the_order_and_the_categories_of_the_model(table):
    csv_table = table("t,junk,n,code\nred,?,1,1\nnew,?,2,2.0\n,?,3,9\n")
    frame, notes = prediction_frame(csv_table, ["n", "t", "code"], [None, ["blue", "red"], [1, 2]])
    assert list(frame.columns) == ["n", "t", "code"]
    assert notes == []
    assert frame["n"].tolist() == [1, 2, 3]
    assert frame["t"].tolist()[:2] == ["red", "new"]
    assert frame["t"].isna()[2]
    assert frame["code"].tolist() == [
        1,
        2,
        "9",
    ]  # the numbers of the model, and an unknown category


# --- output -----------------------------------------------------------------------------------


def test_invalid_output_paths_are_refused(tmp_path):
    source = tmp_path / "table.csv"
    source.write_text("a\n1\n")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        check_output_path(tmp_path, [])
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        check_output_path(tmp_path / "nowhere" / "out.csv", [])
    with pytest.raises(ValueError, match="would replace the input"):
        check_output_path(tmp_path / "." / "table.csv", [source])
    assert check_output_path(tmp_path / "out.csv", [source]) == (tmp_path / "out.csv").resolve()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_only_a_regular_file_is_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="is not a regular file"):
        check_output_path(tmp_path / "pipe", [])


def test_the_target_of_a_link_is_replaced(tmp_path):
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    write_atomically(check_output_path(tmp_path / "link.csv", []), b"new")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text() == "new"


def test_a_failed_write_leaves_only_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "out.csv"
    write_atomically(path, b"old\n")

    def fail(self, target):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new\n")
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]


def test_an_absent_date_is_named_but_a_feature_in_days_as_it_is(table):
    csv_table = table("dose,weight\n1,2\n")
    dated = ["sold (days)", "sold (month)", "dose"]
    assert source_columns(csv_table, dated) == ["sold", "dose"]
    assert source_columns(csv_table, ["age (days)", "dose"]) == ["age (days)", "dose"]


def test_a_name_in_another_case_is_suggested(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("Price,area\n1,2\n", "utf-8")
    with pytest.raises(ValueError, match=r"are 'Price', 'area'\. Did you mean 'Price'\?"):
        read_table(path).require(["price"], "--target")


def test_workbook_without_a_readable_sheet(tmp_path):
    path = tmp_path / "new.xlsx"
    excel(("Data", [["a", "y"], [1, 2]]))(path)
    with zipfile.ZipFile(path) as parts:
        contents = {name: parts.read(name) for name in parts.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    for changed, message in (
        ({}, "cannot be read as an Excel file: "),
        ({sheet: contents[sheet][:-90]}, "cannot be read as an Excel file: "),
    ):
        with zipfile.ZipFile(path, "w") as parts:
            for name, content in contents.items():
                if name != sheet or changed:
                    parts.writestr(name, changed.get(name, content))
        with pytest.raises(ValueError, match=re.escape(message)):
            read_table(path)
