"""`twinned export`: write a saved model in a format that runs without Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinned.app.cli import messages
from twinned.app.cli.options import AsJson, SavedModel, check_output_path, output_option

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from twinned.app.cli.options import Facts


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Export a saved model to a file that runs without Python.

    Prints the size of the file, the type of the numeric inputs of an ONNX file and, of C code, its
    memory and the largest difference of its predictions to those of the model.

    For example:

        twinned export houses.twin -o houses.onnx

        twinned export houses.twin -o houses.onnx --outputs mean --confidence 0.9

        twinned export houses.twin -o houses.h --anchors 32

    Parameters
    ----------
    output
        File to write; its suffix sets the format: .onnx or .h (C).
    outputs
        Outputs of the exported model.
    confidence
        Also export the ends, lower and upper, of prediction intervals with this confidence, such
        as 0.9. The model must have been cross-validated when it was fitted.
    anchors
        Number of anchors to store, chosen so that they predict as all do.
    dtype
        ONNX: type of the numeric inputs, float64 (the default) or float32.
    """

    model: SavedModel
    output: Annotated[Path, output_option()]
    outputs: Annotated[str, typer.Option(metavar="NAMES")] = "mean,std"
    confidence: Annotated[float | None, typer.Option(metavar="P")] = None
    anchors: Annotated[int | None, typer.Option(metavar="N", min=1)] = None
    dtype: Annotated[str | None, typer.Option(metavar="TYPE")] = None
    as_json: AsJson = False


def export_command(options: ExportOptions) -> None:
    """Export a saved model to a file that runs without Python."""
    from twinned.app.cli.saved_model import load_predictor
    from twinned.export.thinning import thin

    model, output = options.model, options.output
    write = _WRITERS.get(output.suffix.lower())
    if write is None:
        suffixes = " or ".join(_WRITERS)
        raise ValueError(f"-o {output}: the name must end in {suffixes}, which is the format.")
    path = check_output_path(output, [model])
    saved: BaseEstimator = load_predictor(model).model
    with messages.print_warnings():
        thinned = saved if options.anchors is None else thin(saved, options.anchors)
        facts = write(thinned, path, options)
    facts |= {"model": str(model), "model_bytes": model.stat().st_size}
    facts |= {"output": str(output), "bytes": path.stat().st_size}
    messages.print_result(facts, "\n".join(_summary_lines(facts, model.name)), options.as_json)


def _write_onnx(model: BaseEstimator, path: Path, options: ExportOptions) -> Facts:
    """Write an ONNX file."""
    from twinned.export.onnx import DTYPES, to_onnx
    from twinned.rows.validation import check_choice

    dtype = options.dtype or "float64"
    check_choice("--dtype", dtype, DTYPES)
    outputs = re.findall(r"[^\s,]+", options.outputs)
    to_onnx(model, path, outputs=outputs, confidence=options.confidence, dtype=dtype)
    return {"dtype": dtype}


def _write_c(model: BaseEstimator, path: Path, options: ExportOptions) -> Facts:
    """Write a C header."""
    from twinned.estimators.target import split_target
    from twinned.export.c import to_c

    if options.confidence is not None:
        raise ValueError("--confidence is for ONNX; intervals of C are those that a twin stores.")
    if options.dtype is not None:
        raise ValueError("--dtype is for ONNX; inputs of C are floats.")
    name = path.stem if re.fullmatch(r"[A-Za-z]\w*", path.stem, re.ASCII) else "twin"
    report = to_c(model, path, name=name)
    if not report.has_intervals:
        reason = "they have a learned width, anchors were dropped, or none are stored"
        messages.print_message("note", f"{name}_interval gives no intervals: {reason}.")
    known_y_std = float(split_target(model)[0].anchors_y_.std())
    return {
        "largest_difference": report.max_difference / (known_y_std or 1.0),
        "anchors": report.n_anchors,
        "flash_bytes": report.flash_bytes,
        "ram_bytes": report.ram_bytes,
    }


# A writer of each format returns what is printed.
_WRITERS = {".onnx": _write_onnx, ".h": _write_c}


def _summary_lines(facts: Facts, model: str) -> Iterator[str]:
    yield f"{facts['output']}: {facts['bytes']:,} bytes, {facts['model_bytes']:,} of {model}"
    if "dtype" in facts:
        yield f"numeric inputs: {facts['dtype']}"
    if "flash_bytes" in facts:
        flash = f"{facts['flash_bytes']:,} bytes of flash for the tables of"
        code = f"{facts['anchors']} anchors, and 1 to 4 kB of code"
        yield f"on a microcontroller: {flash} {code}; {facts['ram_bytes']:,} bytes of RAM"
    if "largest_difference" in facts:
        difference = f"{facts['largest_difference']:.1e} standard deviations of the target"
        yield f"largest difference to predict on the anchors: {difference}"
