"""Text files: detection of encoding and separator, and splitting into records.

The reader of pandas is not used because it does not report the line of a value.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from twinned.app.tables.table import join_names, quoted

Record = tuple[int, list[str]]

_SEPARATORS = (",", ";", "\t", "|")
_NAMES = {"tab": "\t", "\\t": "\t", "space": " "}
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_SAMPLE = 50  # records by which the separator is detected


def decode(path: Path, data: bytes, encoding: str | None) -> tuple[str, str]:
    """Return the text of a file and its encoding, detected where it is None."""
    if encoding is not None:
        try:
            return data.decode(encoding).removeprefix("\ufeff"), encoding
        except LookupError:
            raise ValueError(
                f"--encoding {encoding} is unknown; use utf-8, latin-1, cp1252 or utf-16."
            ) from None
        except UnicodeError as error:
            raise ValueError(
                f"{path} is not {encoding} text ({error}); correct --encoding."
            ) from None
    for detected in _candidate_encodings(data):
        try:
            text = data.decode(detected)
        except UnicodeError:
            continue
        if "\0" not in text:
            return text, detected
    raise ValueError(f"{path} is no text, Excel or Parquet file; save the table as CSV in UTF-8.")


def _candidate_encodings(data: bytes) -> list[str]:
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return [encoding]
    sample = data[:4096]
    if b"\0" in sample:  # in UTF-16, every other byte of most texts is zero
        first, second = (2 * part.count(0) > len(part) for part in (sample[::2], sample[1::2]))
        return [] if first == second else ["utf-16-be" if first else "utf-16-le"]
    return ["utf-8", "cp1252", "latin-1"]


def parse_separator(separator: str) -> str:
    separator = _NAMES.get(separator, separator)
    if len(separator) != 1 or separator in '"\r\n':
        raise ValueError(
            "--separator must be one character such as ',' or ';', or tab or space, not "
            f"{separator!r}."
        )
    return separator


def split_records(path: Path, text: str, separator: str | None) -> tuple[Iterator[Record], str]:
    """Return the first line and the fields of each record that is not blank, and the separator."""
    skipped = 0
    declared = re.match(r"sep=(.)\r?\n", text)  # the first line of some exports of Excel
    if declared:
        text, skipped = text[declared.end() :], 1
        separator = declared[1] if separator is None else separator
    separator = _detect_separator(text) if separator is None else parse_separator(separator)
    return _records(path, text, separator, skipped), separator


def _records(path: Path, text: str, separator: str, skipped: int = 0) -> Iterator[Record]:
    if separator == " ":
        yield from ((n + skipped, line.split()) for n, line in _lines(text) if line.strip())
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


def _lines(text: str) -> Iterator[tuple[int, str]]:
    return enumerate(text.splitlines(), start=1)


def _detect_separator(text: str) -> str:
    """Return the separator that splits the first records into the same number of fields."""
    best, most = ",", (False, 1)
    for separator in (*_SEPARATORS, " "):
        counts = _field_counts(text, separator)
        consistent = len(set(counts)) == 1
        # blanks separate fields only where nothing else does, and in all lines alike
        if separator == " " and (most[1] > 1 or not consistent or len(counts) < 2):
            continue
        if counts and counts[0] > 1 and (consistent, counts[0]) > most:
            best, most = separator, (consistent, counts[0])
    return best


def _field_counts(text: str, separator: str) -> list[int]:
    """Return the number of fields of the first records, without those that cannot be split."""
    counts = []
    try:
        for _, record in islice(_records(Path(), text, separator), _SAMPLE):
            counts.append(len(record))
    except ValueError:
        pass
    return counts


def check_names(path: Path, names: list[str], line: str) -> None:
    """Raise a ValueError for a header with repeated names, or with numbers instead of names."""
    repeated = [name for name in dict.fromkeys(names) if name and names.count(name) > 1]
    if repeated:
        shown = join_names(repeated)
        raise ValueError(f"{path} has several columns of the name {shown}; rename all but one.")
    if all(re.fullmatch(r"[-+]?\d+([.,]\d+)?([eE][-+]?\d+)?", name) for name in names):
        raise ValueError(
            f"{path}, {line} holds numbers such as {quoted(names[0])}, not the names of the "
            "columns; add a header."
        )
