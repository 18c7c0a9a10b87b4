"""Text files as records of cells: encoding and separator are detected."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from twinned.app.tables.header import Record, build_table, find_header
from twinned.app.tables.table import ReadOptions, Table

_SEPARATORS = (",", ";", "\t", "|", " ")
_SEPARATOR_NAMES = {"\t": "tab", " ": "space"}
_NAMED_SEPARATORS = {"tab": "\t", "\\t": "\t", "space": " "}
_ENCODINGS = ["utf_16", "utf_32", "utf_16_le", "utf_16_be", "cp1252"]
_SAMPLE = 50  # records by which the separator is detected


def table_from_text(path: Path, data: bytes, options: ReadOptions) -> Table:
    """Split the bytes of a text file into named columns of text."""
    text, encoding = decode_text(path, data, options.encoding)
    rows, separator = split_records(path, text, options.separator)
    if not rows:
        raise ValueError(f"{path} is empty; its first line should name the columns.")
    detected: list[str] = []
    if options.encoding is None and encoding != "utf-8":
        detected.append(f"encoding {encoding}")
    if options.separator is None and separator != ",":
        detected.append(f"separator {_SEPARATOR_NAMES.get(separator, separator)}")
    reading = replace(options, separator=separator, encoding=encoding)
    _, position = find_header(path, {"": rows}, options)
    return build_table(path, rows, position, reading, detected)


def decode_text(path: Path, data: bytes, encoding: str | None) -> tuple[str, str]:
    """Return the text of a file and its encoding, detected where it is None."""
    detected = encoding or _detect_encoding(data)
    if detected is None:
        raise ValueError(f"{path} is no text, Excel or Parquet file; save the table as CSV.")
    try:
        return data.decode(detected).removeprefix("\ufeff"), detected
    except LookupError:
        known = "utf-8, latin-1, cp1252 or utf-16"
        raise ValueError(f"--encoding {encoding} is unknown; use {known}.") from None
    except UnicodeError as error:
        raise ValueError(f"{path} is not {encoding} text ({error}); correct --encoding.") from None


def _detect_encoding(data: bytes) -> str | None:
    """Return the name of an encoding, None for data that are no text."""
    if b"\0" not in data:
        with suppress(UnicodeError):
            data.decode()
            return "utf-8"
    from charset_normalizer import from_bytes  # after UTF-8, which most files are in

    match = from_bytes(data, cp_isolation=_ENCODINGS, threshold=1.0).best()
    if match is None or "Basic Latin" not in match.alphabets or "\0" in str(match):
        return None if b"\0" in data else "latin-1"  # which has a character for each byte
    return match.encoding.replace("_", "-")


def parse_separator(separator: str) -> str:
    separator = _NAMED_SEPARATORS.get(separator, separator)
    if len(separator) != 1 or separator in '"\r\n':
        allowed = "one character such as ',' or ';', or tab or space"
        raise ValueError(f"--separator must be {allowed}, not {separator!r}.")
    return separator


def split_records(path: Path, text: str, separator: str | None) -> tuple[list[Record], str]:
    """Return the first line and the fields of each record that is not blank, and the separator."""
    skipped = 0
    declared = re.match(r"sep=(.)\r?\n", text)  # the first line of some exports of Excel
    if declared:
        text, skipped = text[declared.end() :], 1
        separator = declared[1] if separator is None else separator
    separator = _detect_separator(text) if separator is None else parse_separator(separator)
    return list(_records(path, text, separator, skipped)), separator


def _records(path: Path, text: str, separator: str, skipped: int = 0) -> Iterator[Record]:
    if separator == " ":
        lines = enumerate(text.splitlines(), start=1 + skipped)
        yield from ((number, line.split()) for number, line in lines if line.strip())
        return
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    while True:
        line = reader.line_num + 1 + skipped  # a quoted field may span several lines
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ValueError(f"{path}, line {line} cannot be read as CSV: {error}.") from None
        if any(cell.strip() for cell in record) or len(record) > 1:
            yield line, [cell.strip() for cell in record]


def _detect_separator(text: str) -> str:
    """Return the separator that splits the first records into the same number of fields."""
    best, most = ",", (False, 1)
    for separator in _SEPARATORS:
        counts = []
        with suppress(ValueError):  # a record that cannot be split ends the sample
            for _, record in islice(_records(Path(), text, separator), _SAMPLE):
                counts.append(len(record))
        consistent = len(set(counts)) == 1
        # blanks separate fields only where nothing else does, and in all lines alike
        if separator == " " and (most[1] > 1 or not consistent or len(counts) < 2):
            continue
        if counts and counts[0] > 1 and (consistent, counts[0]) > most:
            best, most = separator, (consistent, counts[0])
    return best
