"""`twinned export`: write a saved model in a format that runs without Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sklearn.base import BaseEstimator

from twinned.app.cli.messages import print_message, print_result, print_warnings
from twinned.app.cli.options import ExportOptions, check_output_path
from twinned.app.cli.prediction import LoadedTwin, load_twin
from twinned.exceptions import MissingExtraError
from twinned.export.members import select_member
from twinned.export.thinning import thin
from twinned.rows.validation import check_choice

Facts = dict  # what is printed, by name


def export_command(options: ExportOptions) -> None:
    """Export a saved model to a file that runs without Python."""
    model, output = options.model, options.output
    write = _WRITERS.get(output.suffix.lower())
    if write is None:
        suffixes = " or ".join(_WRITERS)
        raise ValueError(f"-o {output}: the name must end in {suffixes}, which is the format.")
    path = check_output_path(output, [model])

    with print_warnings():
        facts = write(load_twin(model, options.key_file), path, options)
    facts |= {"model": str(model), "model_bytes": model.stat().st_size}
    facts |= {"output": str(output), "bytes": path.stat().st_size}
    print_result(facts, "\n".join(_summary_lines(facts, model.name)), options.as_json)


def _reduce(model: BaseEstimator, options: ExportOptions) -> BaseEstimator:
    """A member of a blend, and a twin with fewer anchors."""
    if options.member is not None:
        model = select_member(model, options.member)
    return model if options.anchors is None else thin(model, options.anchors)


def _write_onnx(loaded: LoadedTwin, path: Path, options: ExportOptions) -> Facts:
    """Write an ONNX file."""
    from twinned.export.onnx import DTYPES, runtime, to_onnx

    dtype = options.dtype or "float64"
    check_choice("--dtype", dtype, DTYPES)
    model, outputs = _reduce(loaded.model, options), re.findall(r"[^\s,]+", options.outputs)
    to_onnx(model, path, outputs=outputs, confidence=options.confidence, dtype=dtype)
    difference = None
    if "mean" in outputs:
        try:
            difference = runtime.largest_difference(model, path)
        except MissingExtraError:
            print_message("note", "the file is not compared with predict: pip install onnxruntime.")
    return {"largest_difference": difference, "dtype": dtype}


def _write_c(loaded: LoadedTwin, path: Path, options: ExportOptions) -> Facts:
    """Write a C header."""
    from twinned.export.c import to_c

    if options.confidence is not None:
        raise ValueError("--confidence is for ONNX; intervals of C are those that a twin stores.")
    if options.dtype is not None:
        raise ValueError("--dtype is for ONNX; inputs of C are floats.")
    name = path.stem if re.fullmatch(r"[A-Za-z]\w*", path.stem, re.ASCII) else "twin"
    report = to_c(_reduce(loaded.model, options), path, name=name)
    if not report.has_intervals:
        reason = "they have a learned width, anchors were dropped, or none are stored"
        print_message("note", f"{name}_interval gives no intervals: {reason}.")
    return {
        "largest_difference": report.max_difference / (float(loaded.twin.anchors_y_.std()) or 1.0),
        "anchors": report.n_anchors,
        "flash_bytes": report.flash_bytes,
        "ram_bytes": report.ram_bytes,
    }


# A writer of each format returns what is printed, above all the largest difference to `predict` at
# the anchors, in standard deviations of y.
_WRITERS = {".onnx": _write_onnx, ".h": _write_c}


def _summary_lines(facts: Facts, model: str) -> Iterator[str]:
    yield f"{facts['output']}: {facts['bytes']:,} bytes, {facts['model_bytes']:,} of {model}"
    if "dtype" in facts:
        yield f"numeric inputs: {facts['dtype']}"
    if "flash_bytes" in facts:
        flash = f"{facts['flash_bytes']:,} bytes of flash for the tables of"
        code = f"{facts['anchors']} anchors, and 1 to 4 kB of code"
        yield f"on a microcontroller: {flash} {code}; {facts['ram_bytes']:,} bytes of RAM"
    if facts["largest_difference"] is not None:
        difference = f"{facts['largest_difference']:.1e} standard deviations of the target"
        yield f"largest difference to predict on the anchors: {difference}"
