"""Text files as records of cells: encoding and separator are detected."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

Record = tuple[int, list[str]]  # line of the file, and cells

_SEPARATORS = (",", ";", "\t", "|", " ")
SEPARATOR_NAMES = {"\t": "tab", " ": "space"}
_NAMED_SEPARATORS = {"tab": "\t", "\\t": "\t", "space": " "}
_SAMPLE = 50  # records by which the separator is detected


def decode_text(path: Path, data: bytes, encoding: str | None) -> tuple[str, str]:
    """Return the text of a file and its encoding, detected where it is None."""
    detected = encoding or _detect_encoding(path, data)
    try:
        return data.decode(detected).removeprefix("\ufeff"), detected
    except LookupError:
        known = "utf-8, latin-1, cp1252 or utf-16"
        raise ValueError(f"--encoding {encoding} is unknown; use {known}.") from None
    except UnicodeError as error:
        raise ValueError(f"{path} is not {detected} text ({error}); correct --encoding.") from None


def _detect_encoding(path: Path, data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in data:
        raise ValueError(f"{path} is no text, Excel (.xlsx) or Parquet file; save it as CSV.")
    for encoding in ("utf-8", "cp1252"):
        with suppress(UnicodeError):
            data.decode(encoding)
            return encoding
    return "latin-1"  # which has a character for each byte


def split_records(path: Path, text: str, separator: str | None) -> tuple[list[Record], str]:
    """Return the first line and the fields of each record that is not blank, and the separator."""
    separator = _detect_separator(text) if separator is None else _parse_separator(separator)
    return list(_records(path, text, separator)), separator


def _parse_separator(separator: str) -> str:
    separator = _NAMED_SEPARATORS.get(separator, separator)
    if len(separator) != 1 or separator in '"\r\n':
        allowed = "one character such as ',' or ';', or tab or space"
        raise ValueError(f"--separator must be {allowed}, not {separator!r}.")
    return separator


def _records(path: Path, text: str, separator: str) -> Iterator[Record]:
    if separator == " ":
        lines = enumerate(text.splitlines(), start=1)
        yield from ((number, line.split()) for number, line in lines if line.strip())
        return
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    while True:
        line = reader.line_num + 1  # a quoted field may span several lines
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
