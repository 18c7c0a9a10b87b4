"""Tasks of workers: the predictions of one partition, written to one file."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinned.app.cli.partitions import PARQUET, Partition, Plan, has_rows, open_parquet, read_bytes
from twinned.app.cli.prediction import (
    ModelFeatures,
    ResultColumns,
    inner_twin,
    predict_columns,
    read_features,
    result_content,
)
from twinned.app.tables import ReadOptions, prediction_frame, source_columns, table_from_text
from twinned.app.tables.arrow import header_table, is_numeric, numeric_values, text_table
from twinned.app.tables.numbers import NumberFormat
from twinned.persistence.archive import write_atomically

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

_ROWS_PER_BATCH = 65_536


@dataclass(frozen=True)
class Job:
    """What all partitions have in common; `model_path` is for messages."""

    model_path: Path
    output: Path
    wanted: ResultColumns
    kind: str
    reading: ReadOptions
    formats: dict[str, NumberFormat]

    @classmethod
    def of(cls, plan: Plan, model_path: Path, output: Path, wanted: ResultColumns) -> Job:
        return cls(model_path, output, wanted, plan.kind, plan.reading, plan.formats)


@dataclass(frozen=True)
class Finished:
    """A written partition: its rows, those outside of the known rows, notes and warnings."""

    n_rows: int
    n_outside: int
    notes: list[str]
    warnings: list[str]


def predict_partition(model: Any, job: Job, partition: Partition) -> Finished:
    """Predict a partition and write the result, completely or not at all."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        if job.kind == PARQUET:
            columns, content, notes = _predict_parquet(model, job, partition)
        else:
            columns, content, notes = _predict_text(model, job, partition)
    target = job.output / partition.output
    try:
        write_atomically(target, content)
    except OSError as error:  # which may name the temporary file, or none
        raise OSError(error.errno, error.strerror, str(target)) from None
    n_rows = len(next(iter(columns.values())))
    n_outside = 0
    if job.wanted.applicability:
        n_outside = int((columns["applicability"] == "outside").sum())
    shown = [each for each in caught if issubclass(each.category, UserWarning)]
    return Finished(n_rows, n_outside, notes, [str(each.message) for each in shown])


def _predict_text(
    model: Any, job: Job, partition: Partition
) -> tuple[dict[str, np.ndarray], bytes, list[str]]:
    """Columns of results, the content of their file, and notes."""
    data, wanted = read_bytes(partition), job.wanted
    if not has_rows(data):
        columns = _no_rows(model, wanted)
        copied: dict[str, list[str]] = {name: [] for name in wanted.keep}
        return columns, result_content(Path(partition.output), copied, columns), []
    table = table_from_text(partition.path, data, job.reading)
    formats = zip(table.names, table.formats, strict=True)
    table = replace(
        table,
        formats=[job.formats.get(name, detected) for name, detected in formats],
        lines=[line + partition.first_row for line in table.lines],
    )
    X, _, notes = read_features(table, ModelFeatures.of(model, job.model_path))
    columns = predict_columns(model, X, wanted, job.model_path)
    copied = {name: table.column(name) for name in wanted.keep}
    content = result_content(Path(partition.output), copied, columns, wanted.digits)
    return columns, content, notes


def _predict_parquet(
    model: Any, job: Job, partition: Partition
) -> tuple[dict[str, np.ndarray], bytes, list[str]]:
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    features, keep = ModelFeatures.of(model, job.model_path), list(job.wanted.keep)
    parts = [_no_rows(model, job.wanted)]
    notes: list[str] = []
    row = partition.first_row
    with open_parquet(partition.path) as file:
        schema = file.schema_arrow
        _, sources = features.select(header_table(partition.path, schema.names))
        copied = [pa.Table.from_batches([], schema).select(keep)]
        used = list(dict.fromkeys([*sources, *keep]))
        groups = list(partition.row_groups)
        for batch in file.iter_batches(_ROWS_PER_BATCH, row_groups=groups, columns=used):
            X, batch_notes = _batch_features(batch, partition.path, row, features, job.reading)
            parts.append(predict_columns(model, X, job.wanted, job.model_path))
            copied.append(pa.Table.from_batches([batch]).select(keep))
            notes += batch_notes
            row += batch.num_rows
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    copies = pa.concat_tables(copied)
    result: dict[str, Any] = {name: copies.column(name) for name in keep}
    for name, values in columns.items():
        result[name] = pa.array(values, pa.string() if values.dtype.kind == "O" else None)
    stream = io.BytesIO()
    parquet.write_table(pa.table(result), stream)
    return columns, stream.getvalue(), notes


def _batch_features(
    batch: Any, path: Path, first_row: int, features: ModelFeatures, reading: ReadOptions
) -> tuple[pd.DataFrame | np.ndarray, list[str]]:
    """The features of a batch of rows of a Parquet file, and notes.

    Numbers are converted as they are; other columns are text cells, as in `twinned predict` of a
    single file.
    """
    import numpy as np
    import pandas as pd

    present = list(batch.schema.names)
    header = header_table(path, present, first_row, batch.num_rows)
    names, _ = features.select(header)
    values: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, categories in zip(names, features.categories, strict=True):
        if categories is None and name in present and is_numeric(batch.column(name).type):
            values[name] = numeric_values(batch.column(name))
        else:
            others[name] = categories
    infinite = {name: int(np.isinf(v).argmax()) for name, v in values.items() if np.isinf(v).any()}
    for name, row in infinite.items():
        raise ValueError(f"{header.location(row, name)}: {values[name][row]} is not finite.")
    notes: list[str] = []
    if others:
        text = text_table(
            path, batch.select(source_columns(header, list(others))), first_row, reading
        )
        frame, notes = prediction_frame(text, list(others), list(others.values()))
        values |= {name: frame[name] for name in others}
    X = pd.DataFrame({name: values[name] for name in names})
    features.check_missing(header, X)
    return features.as_input(X), notes


def _no_rows(model: Any, wanted: ResultColumns) -> dict[str, np.ndarray]:
    """The columns of `predict_columns`, of no rows."""
    import numpy as np

    n_outputs = inner_twin(model)._n_outputs
    suffixes = [""] if n_outputs is None else [f"_{output}" for output in range(n_outputs)]
    parts = ["prediction", "std"] if wanted.std else ["prediction"]
    names = [f"{part}{suffix}" for part in parts for suffix in suffixes]
    names += ["low", "high"] if wanted.interval is not None else []
    columns: dict[str, np.ndarray] = {name: np.empty(0) for name in names}
    if wanted.applicability:
        columns["applicability"] = np.empty(0, dtype=object)
    return columns
