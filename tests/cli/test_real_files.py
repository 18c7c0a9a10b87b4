"""Files as people have them: each gives the right table, or one clear line.

A case is a file, the options of the call, and either the expected features (with parts of the notes
on standard error) or parts of the error.
"""

import datetime
import io
import json
import re
import sys
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from twinned.app.cli import app
from twinned.app.cli.options import TrainingOptions
from twinned.app.cli.training_data import read_training_data
from twinned.app.tables.frames import prediction_frame
from twinned.app.tables.reader import read_table

NAN = float("nan")


@dataclass
class Case:
    name: str
    content: object  # text, bytes, or a function that writes the file
    features: dict = field(default_factory=dict)
    notes: tuple = ()
    error: tuple = ()
    y: tuple = ()
    options: dict = field(default_factory=dict)
    suffix: str = "csv"


def lines(header, rows, n=25):
    """CSV text of n rows; `rows` gives the text of row i."""
    return header + "\n" + "".join(rows(i) + "\n" for i in range(n))


def excel(*sheets):
    """Content of an .xlsx file; a sheet is a title and rows."""

    def write(path):
        openpyxl = pytest.importorskip("openpyxl")
        workbook = openpyxl.Workbook()
        workbook.remove(workbook.active)
        for title, rows in sheets:
            sheet = workbook.create_sheet(title)
            for row in rows:
                sheet.append(row)
        workbook.save(path)

    return write


def with_format_of_the_last_cell(write):
    """An .xlsx file in which someone formatted all columns down to a far row."""

    def write_and_format(path):
        write(path)
        openpyxl = pytest.importorskip("openpyxl")
        workbook = openpyxl.load_workbook(path)
        workbook.active["XFD99999"].font = openpyxl.styles.Font(bold=True)
        workbook.save(path)

    return write_and_format


def parquet(**columns):
    def write(path):
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pa.table(columns), path)

    return write


def squares(n=25, period=1000):
    return tuple(float((i % period) ** 2) for i in range(n))


def lab(*below, n=4, above=(), **cells):
    """Content of an .xlsx file of a laboratory; `cells` are values, B2 that of the first case."""
    header = ["Sample", "Pb", "Cu", "y"]
    rows = [[f"S{i}", 0.5 + i, 3.0 * i * i, 70.5 + i] for i in range(n)]
    for place, value in cells.items():
        rows[int(place[1:]) - 2]["ABCD".index(place[0])] = value
    cover = ("Cover", [["Project", "P12"], ["Target", "y"], ["Author", "Kim"], ["Samples", n]])
    titles = [["Results"], [None], *(above or [header])]
    return excel(cover, ("Data", [*titles, *rows, *below]))


DAY = datetime.datetime(2024, 1, 30)
LAB = {"Sample": ["S0", "S1", "S2", "S3"], "Pb": [0.5, 1.5, 2.5, 3.5], "Cu": [0, 3, 12, 27]}
FOUND = "sheet 'Data' (others: 'Cover'), the names of columns in row"
A = {"a": [1.5, 2.5]}
CASES = [
    # --- separators and encodings
    Case("comma", "a,y\n1.5,3\n2.5,4\n", A),
    Case("semicolon", "a;y\n1.5;3\n2.5;4\n", A, ("separator ;",)),
    Case("tab", "a\ty\n1.5\t3\n2.5\t4\n", A, ("separator tab",), suffix="tsv"),
    Case("pipe", "a|y\n1.5|3\n2.5|4\n", A, ("separator |",)),
    Case("aligned with spaces", "a     y\n1.5   3\n2.5   4\n", A, ("separator space",)),
    Case("sep= of Excel", "sep=;\na;y\n1.5;3\n2.5;4\n", A, ("separator ;",)),
    Case("separator given", "a;y\n1.5;3\n2.5;4\n", A, options={"separator": ";"}),
    Case("text with commas between semicolons", "t;y\nwood, old;3\nwood, new;4\n",
         {"t": ["wood, old", "wood, new"]}, ("separator ;",)),
    Case("UTF-8 with byte order mark", "a,y\n1.5,3\n2.5,4\n".encode("utf-8-sig"), A),
    Case("UTF-16 with byte order mark", "ä\ty\nrot\t3\nblau\t4\n".encode("utf-16"),
         {"ä": ["rot", "blau"]}, ("encoding utf-16, separator tab",)),
    Case("latin-1", "Größe;y\nklein;3\ngroß;4\n".encode("latin-1"),
         {"Größe": ["klein", "groß"]}, ("encoding cp1252, separator ;",)),
    Case("Windows-1252", "Preis;y\n5 €;3\nfrei – ja;4\n".encode("cp1252"),
         {"Preis": ["5 €", "frei – ja"]}, ("encoding cp1252, separator ;",)),
    Case("encoding given", "Größe,y\nklein,3\ngroß,4\n".encode("cp850"),
         {"Größe": ["klein", "groß"]}, options={"encoding": "cp850"}),
    Case("wrong encoding given", "ö,y\n1,3\n2,4\n".encode("latin-1"),
         error=("is not utf-8 text", "--encoding"), options={"encoding": "utf-8"}),
    Case("line breaks of old computers", "a,y\r1.5,3\r2.5,4\r", A),
    Case("line break in quotes", '"a\nb",y\n"1.5",3\n2.5,4\n', {"a\nb": [1.5, 2.5]}),
    # --- numbers
    Case("decimal comma", "a;y\n1,5;3,5\n2,5;4\n", A, ("decimal comma",), y=(3.5, 4.0)),
    Case("decimal comma and points between thousands", "a;y\n1.234,5;1.000\n0,5;2.000\n",
         {"a": [1234.5, 0.5]}, ("decimal comma, thousands separated by '.'",), y=(1000, 2000)),
    Case("commas between thousands", 'a,y\n"1,234.5",3\n"12,000",4\n', {"a": [1234.5, 12000]},
         ("thousands separated by ','",)),
    Case("spaces between thousands", "a;y\n1 234,5;3\n12\u00a0000,5;4\n",
         {"a": [1234.5, 12000.5]}, ("decimal comma, thousands separated by ' '",)),
    Case("apostrophes between thousands", "a;y\n1'234.5;3\n12’000;4\n", {"a": [1234.5, 12000]},
         ("thousands separated by \"'\"",)),
    Case("comma that is either", "a;y\n1,234;3\n2,345;4\n",
         error=("line 2, column 'a': '1,234' is 1.234 or 1234", "--decimal ',' or --thousands")),
    Case("point that is either", "a;y\n1.234;3\n2.345;4\n", error=("'1.234' is 1.234 or 1234",)),
    Case("comma that is either, decimal given", "a;y\n1,234;3\n2,345;4\n", {"a": [1.234, 2.345]},
         ("separator ;",), options={"decimal": ","}),
    Case("comma that is either, thousands given", "a;y\n1,234;3\n2,345;4\n", {"a": [1234, 2345]},
         ("separator ;",), options={"thousands": ","}),
    Case("another column shows the decimal sign", "a;b;y\n1.234;0,5;3\n2.345;0,7;4\n",
         {"a": [1234, 2345], "b": [0.5, 0.7]}, ("decimal comma, thousands separated by '.'",)),
    Case("two decimal signs in a column", "a;y\n1,5;3\n2.5;4\n3.5;4\n",
         error=("line 2, column 'a': '1,5' is text in a numeric column",)),
    Case("a column in another notation", "a;b;y\n1,5;0.5;3\n2,5;0.7;4\n3,5;0.8;5\n",
         error=("line 2, column 'a': '1,5' is text in a numeric column, as are", "see --decimal")),
    Case("currency and percent", "a;b;y\n$1,200.50;5 %;3\n$900;7.5 %;4\n",
         {"a": [1200.5, 900], "b": [5, 7.5]}, ("thousands separated by ','; ",)),
    Case("unit", "a,y\n12.5 mg,3\n3 mg,4\n7 mg,5\n",
         error=("line 2, column 'a': '12.5 mg' is text", "without the unit 'mg'")),
    Case("minus sign of typography", "a,y\n−1.5,3\n2.5,4\n", {"a": [-1.5, 2.5]}),
    Case("a text among 600 numbers",
         lines("a,y", lambda i: f"{'n.d.' if i == 9 else i * 0.7},{i}", 600),
         error=("line 11, column 'a': 'n.d.' is text", "--missing n.d. if it means a missing value",
                "--categorical a")),
    Case("another spelling of a missing value", "a,b,y\nn.d.,x,3\n1.5,N.D.,4\n2.5,x,5\n",
         {"a": [NAN, 1.5, 2.5], "b": ["x", None, "x"]}, options={"missing": ["n.d."]}),
    Case("several problems of a column", "a;y\n1;3\nx;4\n3;5\nz;6\n",
         error=("line 3, column 'a': 'x' is text in a numeric column, as are 'z'; correct it",)),
    Case("ambiguous numbers", "a;y\n1,234;3\n2,345;4\n3,456;5\n",
         error=("line 2, column 'a': '1,234' is 1.234 or 1234",)),
    Case("infinity", "a,y\n1,3\n2,4\ninf,6\n", error=("line 4, column 'a': 'inf'",)),
    Case("text in the target", "a,y\n1,3\n2,low\n3,6\n",
         error=("line 3, column 'y': 'low' is text",)),
    Case("a number too large", "a,b,y\n1,1,3\n2,1e200,4\n",
         error=("line 3, column 'b': '1e+200' is not a finite number of at most 1.7e+38",)),
    Case("text as the target", "a,y\n1,low\n2,high\n3,low\n",
         error=("column 'y' holds text such as 'low', 'high'; the --target must be a column of",)),
    Case("empty column", "a,b,y\n1.5,,3\n2.5,NA,4\n", A, ("column 'b' is empty and is not used",)),
    Case("row without features", "a,b,y\n1.5,<2,3\n2.5,4,4\n,,7\n",
         {"a": [1.5, 2.5], "b": [1, 4], "b (limit)": [-1, 0]},
         ("1 of 3 rows have no value of any feature and are not used", "half the limit"), y=(3, 4)),
    Case("600 different numbers as text", lines("a;y", lambda i: f"{i % 596},{i % 7}5;{i}", 600),
         {"a": [float(f"{i % 596}.{i % 7}5") for i in range(600)]}, ("decimal comma",)),
    Case("missing values", "a,b,y\n?,x,3\n1.5,n/a,4\n-,,5\n#DIV/0!,x,6\n",
         {"a": [NAN, 1.5, NAN], "b": ["x", None, "x"]},
         ("1 of 4 rows have no value of any feature",), y=(3, 4, 6)),
    # --- detection limits
    Case("limits", "a,b,y\n<5,1,3\n7,> 100,4\n8,2,5\n",
         {"a": [2.5, 7, 8], "b": [1, 100, 2], "a (limit)": [-1, 0, 0], "b (limit)": [0, 1, 0]},
         ("columns 'a', 'b': cells such as <5 are read as half the limit",)),
    Case("limits with decimal comma", "a;y\n<0,5;3\n≥1,5;4\n1,2;5\n",
         {"a": [0.25, 1.5, 1.2], "a (limit)": [-1, 1, 0]}, ("decimal comma", "half the limit")),
    Case("limits in the target", "a,y\n1,<5\n2,6\n3,7\n4,> 100\n", {"a": [1, 2, 3, 4]},
         ("column 'y': 2 of 4 values are limits",), y=(NAN, 6, 7, NAN)),
    Case("too few values besides limits", "a,y\n1,<5\n2,6\n",
         error=("column 'y' has 1 values that are not limits",)),
    Case("constant target", "a,y\n1,5\n2,5.0\n3,5\n",
         error=("column 'y' is 5 in all rows; there is nothing to predict",)),
    Case("ranges", "a,y\n<18,3\n18-30,4\n>30,5\n", {"a": ["<18", "18-30", ">30"]}),
    # --- counters, identifiers and dates
    Case("counter", lines("nr,a,y", lambda i: f"{i + 1},{i * i},{i}"), {"a": squares()},
         ("column 'nr' counts the rows and is not used; --label nr", "--numeric nr")),
    Case("counter as a feature", lines("nr,y", lambda i: f"{i + 1},{i * i}"),
         {"nr": range(1, 26)}, options={"numeric": ["nr"]}),
    Case("index with gaps", "__index_level_0__,a,y\n0,1.5,3\n4,2.5,4\n", A,
         ("'__index_level_0__' is an identifier, with a different whole number in each row,",)),
    Case("index of pandas", ",a,y\n0,1.5,3\n1,2.5,4\n", A, ("columns without a name (1)",)),
    Case("columns without a name", ",a,y,\n7,1.5,3,x\n3,2.5,4,\n", A,
         ("columns without a name (1, 4) are not used; name them",)),
    *(Case(f"random rows, {name}", f"{name},a,y\n20433,1.5,3\n17,2.5,4\n", A,
           (f"column '{name}' is an identifier", f"--numeric {name!r}" if " " in name else name))
      for name in ("Unnamed: 0", "rownames", "row_number", "Row ID", "index")),
    Case("identifier of numbers", lines("sample_id,a,y", lambda i: f"{7 * i * i + 1},{i * i},{i}"),
         {"a": squares()}, ("column 'sample_id' is an identifier",)),
    Case("596 texts in 600 rows", lines("id,a,y", lambda i: f"row {i % 596},{i * i},{i}", 600),
         {"a": squares(600)}, ("'id' holds 596 different texts in 600 rows, such as 'row 0'",
         "--label id", "--group id", "--categorical id")),
    Case("label", lines("id,a,y", lambda i: f"row {i},{i * i},{i}"), {"a": squares()},
         options={"label": "id"}),
    Case("dates", lines("d,a,y", lambda i: f"{i + 1}.1.2024,{i * i},{i}"), {"a": squares()},
         ("column 'd' holds dates, such as '1.1.2024', and is not used; --date d",)),
    Case("date parts", "d,y\n31.01.2024,3\n01.02.2024,4\n",
         {"d (days)": [19753, 19754], "d (month)": [1, 2], "d (weekday)": [3, 4]},
         options={"dates": ["d"]}),
    Case("times", "d,y\n2024-01-31T06:00:00Z,3\n2024-01-31T18:30:00Z,4\n",
         {"d (days)": [19753.25, 19753 + 18.5 / 24], "d (hour)": [6, 18.5]},
         options={"dates": ["d"]}),
    Case("day or month first", "d,y\n01/02/2024,3\n03/04/2024,4\n",
         error=("'d'", "the day or the month first"), options={"dates": ["d"]}),
    # --- structure
    Case("blank rows and columns at the end",
         "a;y;;\n1.5;3;;\n2.5;4;;\n;;;\n;;;\n", A, ("separator ;",)),
    Case("duplicate names", "a,a,y\n1,2,3\n2,3,4\n", error=("several columns of the name 'a'",)),
    Case("duplicate rows", "a,y\n1.5,3\n1.5,3\n2.5,4\n", {"a": [1.5, 1.5, 2.5]}),
    Case("no header", "1.5,3\n2.5,4\n", error=("line 1 holds numbers", "add a header")),
    Case("title above the header", "Results 2024\na,y\n1.5,3\n2.5,4\n", A,
         ("the names of columns in line 2; --separator, --encoding, --header-row",)),
    Case("name with a unit below a title", "Protocol;;\n;;\nYield;Y [%];a\n1;2;3\n2;3;4\n",
         error=("its columns are 'Yield', 'Y [%]', 'a'. Did you mean 'Y [%]'?",)),
    Case("rows of different length", "a,b,y\n1,2,3\n1,2\n1\n",
         error=("line 3 has 2 fields, but line 1 names 3",)),
    Case("empty", "", error=("is empty",)),
    Case("old Excel", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\x00", error=("no text, Excel (.xlsx)",)),
    Case("compressed", b"\x1f\x8b\x08\x00", error=("no text, Excel (.xlsx) or Parquet file",)),
    Case("image", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", error=("no text, Excel (.xlsx)",)),
    # --- Excel and Parquet
    Case("Excel", excel(("Data", [["a", "t", "y"], [1.5, "x", 3], [2, "z", 4]])),
         {"a": [1.5, 2], "t": ["x", "z"]}, suffix="xlsx"),
    Case("several sheets", excel(("Empty", []), ("Data", [["a", "y"], [1.5, 3], [2.5, 4]]),
         ("Notes", [["by hand"]])), A, ("sheet 'Data' (others: 'Notes'); --sheet",), suffix="xlsx"),
    Case("table without the target", excel(("About", [["b", "x"], [1, 2]]), ("Data", [["a", "z"]])),
         error=("no column 'y'", "This is sheet 'About' (others: 'Data'). Select another with --"),
         suffix="xlsx"),
    Case("sheet by name", excel(("Old", [["b"], [1]]), ("New", [["a", "y"], [1.5, 3], [2.5, 4]])),
         A, options={"sheet": "New"}, suffix="xlsx"),
    Case("sheet by number", excel(("Old", [["b"], [1]]), ("New", [["a", "y"], [1.5, 3], [2.5, 4]])),
         A, options={"sheet": "2"}, suffix="xlsx"),
    Case("no such sheet", excel(("Data", [["a", "y"], [1, 2]])),
         error=("has no sheet 'Raw' (--sheet); its sheets are 'Data'",), options={"sheet": "Raw"},
         suffix="xlsx"),
    Case("Excel with numbers as text, dates and booleans", excel(("Data", [["a", "d", "b", "y"],
         ["1,5", DAY, True, 3], ["2,5", DAY, False, 4]])), {"a": [1.5, 2.5], "b": [1, 0]},
         ("decimal comma", "column 'd' holds dates, such as '2024-01-30'"), suffix="xlsx"),
    Case("Excel with a text among numbers", excel(("Data", [["a", "y"], [1.5, 3], [None, None],
         ["x", 4], [3.5, 5]])), error=("row 4, column 'a': 'x' is text",), suffix="xlsx"),
    Case("Excel with a number as text among numbers", excel(("Data", [["a", "y"], [1.5, 3],
         ["2,5", 4]])), A, ("decimal comma",), suffix="xlsx"),
    # --- Excel files of a laboratory
    Case("cover sheet", lab(), LAB, (f"{FOUND} 3; --sheet, --header-row",), suffix="xlsx"),
    Case("limits among numbers", lab(B2="<0,10", B5="> 1,5"),
         LAB | {"Pb": [0.05, 1.5, 2.5, 1.5], "Pb (limit)": [-1, 0, 0, 1]},
         (f"{FOUND} 3, decimal comma", "half the limit"), suffix="xlsx"),
    Case("limits among numbers, decimal given", lab(B2="<0,10"),
         LAB | {"Pb": [0.05, 1.5, 2.5, 3.5], "Pb (limit)": [-1, 0, 0, 0]},
         (FOUND, "half the limit"), options={"decimal": ","}, suffix="xlsx"),
    Case("limits among numbers, ambiguous", lab(B2="<1,000"),
         error=("row 4, column 'Pb': '<1,000' is 1 or 1000; give --decimal",), suffix="xlsx"),
    Case("groups above the names", lab(above=[["Sample", "Metals", None, "Result"],
         ["Sample", "Pb", "Cu", "y"]]), LAB, (f"{FOUND} 4",), suffix="xlsx"),
    Case("groups of equal names", lab(above=[[None, "before", "after", None],
         ["Sample", "Pb", "Pb", "y"]]), suffix="xlsx",
         error=("several columns of the name 'Pb'; rename all but one",)),
    Case("row of units", lab(above=[["Sample", "Pb", "Cu", "y"], ["[unit]", "mg/L", "mg/L", "%"]]),
         error=("row 4, column 'Pb': 'mg/L' is text",), suffix="xlsx"),
    Case("row of units named as missing", lab(above=[["Sample", "Pb", "Cu", "y"],
         [None, "mg/L", "mg/L", "%"]]), LAB, (f"{FOUND} 3", "1 of 5 rows have no value of 'y'"),
         y=(70.5, 71.5, 72.5, 73.5), options={"missing": ["mg/L", "%"]}, suffix="xlsx"),
    Case("header row given", excel(("Data", [["y", "a"], [2020, 2021], ["a", "y"], [1.5, 3],
         [2.5, 4]])), A, ("the names of columns in row 3",), y=(3, 4), options={"header_row": 3},
         suffix="xlsx"),
    Case("no such header row", "a,y\n1,2\n2,3\n", error=("--header-row 9: ", "has no such row"),
         options={"header_row": 9}),
    Case("means below the table", lab([None], ["Mean:", 2.0, 10.5, 72.0]), LAB,
         (FOUND, "1 of 5 rows begin with a word such as Mean and are not used"), suffix="xlsx"),
    Case("mean of the target below the table", lab([None, None, None, 72.0], n=25),
         {"Pb": [0.5 + i for i in range(25)], "Cu": [3 * i * i for i in range(25)]},
         (FOUND, "1 of 26 rows have no value of any feature", "'Sample' holds 25"), suffix="xlsx"),
    Case("several problems in Excel", lab(B3="n.d.", B4="trace"),
         error=("row 5, column 'Pb': 'n.d.' is text in a numeric column, as are 'trace'",),
         suffix="xlsx"),
    Case("a formula without a value", lab(C3="=B4*2"), LAB | {"Cu": [0, NAN, 12, 27]}, (FOUND,),
         suffix="xlsx"),
    Case("unused formulas without values", lab(["Mean", "=1", "=2", "=3"], [None, None, "=B4"],
         C3="=1", above=[["=1", "=2"], ["Sample", "Pb", "Cu", "y"]]),
         {"Sample": LAB["Sample"], "Pb": LAB["Pb"]}, (f"{FOUND} 4",
         "1 of 5 rows begin with a word such as Mean"), options={"drop": ["Cu"]}, suffix="xlsx"),
    Case("Excel with titles", excel(("Data", [["Results"], [None], [None, "2024"], ["a", "y"],
         [1.5, 3], [2.5, 4]])), {"a": [1.5, 2.5]}, ("the names of columns in row 4",), y=(3, 4),
         suffix="xlsx"),
    Case("Excel with a title and no header", excel(("Data", [["Results"], [1.5, 3], [2.5, 4]])),
         error=("row 2 holds numbers such as '1.5', not the names",), suffix="xlsx"),
    Case("Excel with a format of the last cell", with_format_of_the_last_cell(
         excel(("Data", [["a", "y"], [1.5, 3], [2.5, 4]]))), A, suffix="xlsx"),
    Case("another zip", b"PK\x03\x04rest", error=("cannot be read as an Excel file",)),
    Case("Parquet", parquet(a=[1.5, None], t=["x", "z"], y=[3, 4]),
         {"a": [1.5, NAN], "t": ["x", "z"]}, suffix="parquet"),
    Case("Parquet with limits and dates", parquet(a=["<5", "7.5"], d=[DAY, DAY], y=[3, 4]),
         {"a": [2.5, 7.5], "a (limit)": [-1, 0]}, ("'d' holds dates", "half the limit"),
         suffix="parquet"),
]  # fmt: skip


def write(case, folder):
    path = folder / f"table.{case.suffix}"
    if callable(case.content):
        case.content(path)
    elif isinstance(case.content, bytes):
        path.write_bytes(case.content)
    else:
        path.write_text(case.content, encoding="utf-8", newline="")
    return path


def training_options(case, path):
    others = {"date" if key == "dates" else key: value for key, value in case.options.items()}
    return TrainingOptions(table=path, targets=["y"], **others)


def assert_features(frame, expected):
    assert list(frame.columns) == list(expected)
    for name, values in expected.items():
        if isinstance(next(iter(values)), str):
            assert frame[name].astype(object).where(frame[name].notna(), None).tolist() == values
        else:
            np.testing.assert_array_equal(frame[name], np.array(values, dtype=float))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_file(case, tmp_path):
    options = training_options(case, write(case, tmp_path))
    if case.error:
        with pytest.raises(ValueError) as refusal:
            read_training_data(options)
        assert "\n" not in str(refusal.value)
        for text in case.error:
            assert text in str(refusal.value)
        return
    data = read_training_data(options)
    assert_features(data.X, case.features)
    if case.y:
        np.testing.assert_array_equal(data.y, case.y)
    notes = "\n".join(data.notes)
    for text in case.notes:
        assert text in notes
    assert len(data.notes) == 0 if not case.notes else len(data.notes) <= len(case.notes)
    # what was recognized in training is applied in the same way in prediction
    categories = [
        list(data.X[name].cat.categories) if data.X[name].dtype == "category" else None
        for name in data.X.columns
    ]
    table = read_table(options.table, options, list(data.X.columns))
    table = table.take([table.lines.index(line) for line in data.table.lines])
    again, _ = prediction_frame(table, list(data.X.columns), categories)
    assert_features(again, case.features)


def test_there_are_forty_cases():
    assert len({case.name for case in CASES}) == len(CASES) >= 40


@pytest.mark.parametrize(
    ("module", "case", "extra"), [("openpyxl", "Excel", "excel"), ("pyarrow", "Parquet", "parquet")]
)
def test_missing_library_is_one_clear_line(tmp_path, monkeypatch, module, case, extra):
    path = write(next(each for each in CASES if each.name == case), tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"{module}: pip install -e '\.\[{extra}\]'"):
        read_table(path)


# --- fit, then predict ----------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})


def lab_table(n=30):
    rng = np.random.default_rng(0)
    lead, x = rng.uniform(1, 50, n).round(1), rng.uniform(0, 2000, n).round(1)
    days = pd.date_range("2024-01-01", periods=n, freq="17D")
    return pd.DataFrame({"day": days, "lead": lead, "x": x, "y": lead + x / 100})


def german(table):
    """The table as a German spreadsheet exports it, with limits of detection."""
    text = pd.DataFrame({
        "Probe": [f"P-{i}" for i in range(len(table))],
        "day": table["day"].dt.strftime("%d.%m.%Y"),
        "lead": ["<5" if v < 5 else f"{v}".replace(".", ",") for v in table["lead"]],
        "x": [f"{v:,.1f}".translate(str.maketrans(",.", ".,")) for v in table["x"]],
        "y": [f"{v:.3f}".replace(".", ",") for v in table["y"]],
    })  # fmt: skip
    return text.to_csv(sep=";", index=False).encode("latin-1")


def test_german_file_predicts_like_a_plain_one(tmp_path):
    (tmp_path / "de.csv").write_bytes(german(lab_table()))
    model = tmp_path / "m.twin"
    fit = run("fit", tmp_path / "de.csv", "-t", "y", "-m", "ridge", "--no-check", "--date", "day",
              "-o", model, "--json")  # fmt: skip
    assert fit.exit_code == 0, fit.output
    assert len(fit.stderr.splitlines()) == 3  # notation, identifier, limits
    assert re.search("separator ;, decimal comma.*\n.*'Probe' holds 30 .*\n.*'lead'", fit.stderr)
    assert json.loads(fit.stdout)["numbers"] == [
        "lead", "x", "day (days)", "day (month)", "day (weekday)", "lead (limit)",
    ]  # fmt: skip
    plain = lab_table()
    plain["lead"] = [("<5" if v < 5 else v) for v in plain["lead"]]
    plain.drop(columns="y").to_csv(tmp_path / "en.csv", index=False)
    predictions = []
    for name in ("de.csv", "en.csv"):
        result = run("predict", model, tmp_path / name)
        assert result.exit_code == 0, result.output
        predictions.append(pd.read_csv(io.StringIO(result.stdout))["prediction"])
    np.testing.assert_array_equal(*predictions)
    absent = run("predict", model, write(CASES[0], tmp_path))
    assert absent.exit_code == 2
    assert "no column 'lead', 'x'" in absent.stderr


def test_swapped_arguments_are_refused(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("a,y\n1,2\n2,3\n3,5\n")
    model = tmp_path / "m.twin"
    fitted = run("fit", table, "-t", "y", "-m", "ridge", "-o", model, "--no-check")
    assert fitted.exit_code == 0, fitted.output
    for command in ("predict", "query"):
        swapped = run(command, table, model)
        assert swapped.exit_code == 2
        assert f"{table} is not loaded: it is not a model file." in swapped.stderr
    wrong = run("fit", model, "-t", "y", "-o", tmp_path / "n.twin")
    assert (wrong.exit_code, "is a saved model, not a table" in wrong.stderr) == (2, True)


def test_file_of_a_laboratory_is_predicted_as_it_is_fitted(tmp_path):
    table, model = tmp_path / "lab.xlsx", tmp_path / "m.twin"
    lab(["Mean", 2.5, 9.5, 75.0], n=12, B3="<1,5", C4="n.d.")(table)
    options = ("--missing", "n.d.")
    fit = run("fit", table, "-t", "y", "-m", "twin", "--no-check", "-o", model, *options, "--json")
    assert fit.exit_code == 0, fit.output
    assert (json.loads(fit.stdout)["rows"], json.loads(fit.stdout)["dropped_rows"]) == (12, 1)
    result = run("predict", model, table, "--keep", "Sample", *options)
    assert result.exit_code == 0, result.output
    assert f"{FOUND} 3" in result.stderr
    assert pd.read_csv(io.StringIO(result.stdout))["Sample"].tolist()[:2] == ["S0", "S1"]
