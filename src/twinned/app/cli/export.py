"""`twinned export`: write a saved model in a format that runs without Python."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from twinned.app.cli import options
from twinned.app.cli.messages import exit_on_bad_input, print_message, print_warnings
from twinned.app.cli.prediction import inner_twin, load_twin
from twinned.exceptions import MissingExtraError


class Settings(NamedTuple):
    """Options of an export."""

    outputs: list[str]
    confidence: float | None
    dtype: str  # of the inputs of an ONNX file
    unit: float  # the standard deviation of y


Facts = dict[str, Any]  # that are printed


def _write_onnx(model: Any, path: Path, settings: Settings) -> Facts:
    """Write an ONNX file."""
    from twinned.export.onnx import DTYPES, to_onnx
    from twinned.export.onnx.runtime import (
        changes_predictions,
        largest_difference,
        rounded_features,
    )
    from twinned.rows.validation import check_choice

    check_choice("--dtype", settings.dtype, DTYPES)
    dtype, rounded, changes = settings.dtype, rounded_features(model), changes_predictions(model)
    if dtype == "auto":
        dtype = "float64" if rounded or changes else "float32"
    to_onnx(model, path, outputs=settings.outputs, confidence=settings.confidence, dtype=dtype)
    if rounded:
        effect = "would round" if dtype == "float64" else "rounds"
        print_message("note", f"float32 {effect} digits that matter: {', '.join(rounded)}.")
    elif changes:
        effect = "would move" if dtype == "float64" else "moves"
        print_message("note", f"float32 {effect} differences of rows across thresholds of trees.")
    facts: Facts = {"largest_difference": None, "dtype": dtype}
    if "mean" not in settings.outputs:
        return facts
    try:
        return facts | {"largest_difference": largest_difference(model, path)}
    except MissingExtraError:
        print_message("note", "the file is not compared with predict: pip install onnxruntime.")
        return facts


def _write_c(model: Any, path: Path, settings: Settings) -> Facts:
    """Write a C header."""
    from twinned.export.c import to_c

    if settings.confidence is not None:
        raise ValueError("--confidence is for ONNX; intervals of C are those that a twin stores.")
    if settings.dtype != "auto":
        raise ValueError("--dtype is for ONNX; inputs of C are floats.")
    name = path.stem if re.fullmatch(r"[A-Za-z]\w*", path.stem, re.ASCII) else "twin"
    report = to_c(model, path, name=name)
    if not report.has_intervals:
        reason = "they have a learned width, anchors were dropped, or none are stored"
        print_message("note", f"{name}_interval gives no intervals: {reason}.")
    return {
        "largest_difference": report.max_difference / settings.unit,
        "anchors": report.n_anchors,
        "flash_bytes": report.flash_bytes,
        "ram_bytes": report.ram_bytes,
    }


# A writer of each format returns what is printed, above all the largest difference to `predict` at
# the anchors, in standard deviations of y.
_WRITERS: dict[str, Callable[[Any, Path, Settings], Facts]] = {
    ".onnx": _write_onnx,
    ".h": _write_c,
}


def _reduce(model: Any, member: str | None, n_anchors: int | None) -> Any:
    """A member of a blend, and a twin with fewer anchors."""
    if member is not None:
        from twinned.export.members import select_member

        model = select_member(model, member)
    if n_anchors is not None:
        from twinned.export.thinning import thin

        model = thin(model, n_anchors)
    return model


def _target_spread(model: Any) -> float:
    """The standard deviation of y at the anchors."""
    import numpy as np

    return float(np.std(inner_twin(model).anchors_y_)) or 1.0


def export_command(
    model: options.SavedModel,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="File to write; its suffix sets the format: .onnx or .h (C)."
        ),
    ],
    outputs: Annotated[
        str,
        typer.Option("--outputs", help="Outputs of the exported model.", metavar="NAMES"),
    ] = "mean,std",
    confidence: Annotated[
        float | None,
        typer.Option(
            "--confidence",
            help="Also export the ends, lower and upper, of prediction intervals with this "
            "confidence, such as 0.9. The model must have been cross-validated when it was "
            "fitted.",
            metavar="P",
        ),
    ] = None,
    anchors: Annotated[
        int | None,
        typer.Option(
            "--anchors",
            help="Number of anchors to store, chosen so that they predict as all do.",
            metavar="N",
            min=1,
        ),
    ] = None,
    member: Annotated[
        str | None,
        typer.Option(
            "--member",
            help="Export this member of a blend instead of the blend, such as tree_twin: C has no "
            "blends.",
            metavar="NAME",
        ),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(
            "--dtype",
            help="ONNX: type of the numeric inputs, float32 or float64; auto is float32 unless "
            "that would change predictions.",
            metavar="TYPE",
        ),
    ] = "auto",
    key_file: options.KeyFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Export a saved model to a file that runs without Python.

    Prints the size of the file, the type of the numeric inputs of an ONNX file, and the largest
    difference of its predictions to those of the model, on the stored anchors (of an ONNX file,
    where onnxruntime is installed).

    For example:

        twinned export houses.twin -o houses.onnx

        twinned export houses.twin -o houses.onnx --outputs mean --confidence 0.9

        twinned export houses.twin -o houses.h --anchors 32

        twinned export blend.twin -o blend.h --member tree_twin
    """
    with exit_on_bad_input():
        write = _WRITERS.get(output.suffix.lower())
        if write is None:
            suffixes = " or ".join(_WRITERS)
            message = f"-o {output}: the name must end in {suffixes}, which sets the format."
            raise ValueError(message)
        path = options.check_output_path(output, [model])
        names = [name.strip() for name in outputs.split(",") if name.strip()]
        with print_warnings():
            fitted = load_twin(model, key_file)
            settings = Settings(names, confidence, dtype, _target_spread(fitted))
            written = write(_reduce(fitted, member, anchors), path, settings)
    facts = {
        "model": str(model),
        "output": str(output),
        "bytes": path.stat().st_size,
        "model_bytes": model.stat().st_size,
        **written,
    }
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    typer.echo(f"{output}: {facts['bytes']:,} bytes, {facts['model_bytes']:,} of {model.name}")
    if "dtype" in facts:
        typer.echo(f"numeric inputs: {facts['dtype']}")
    if "flash_bytes" in facts:
        typer.echo(
            f"on a microcontroller: {facts['flash_bytes']:,} bytes of flash for the tables of "
            f"{facts['anchors']} anchors, and 1 to 4 kB of code; "
            f"{facts['ram_bytes']:,} bytes of RAM"
        )
    if facts["largest_difference"] is not None:
        typer.echo(
            "largest difference to predict on the anchors: "
            f"{facts['largest_difference']:.1e} standard deviations of the target"
        )
