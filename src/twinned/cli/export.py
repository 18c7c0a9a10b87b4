"""`twinned export`: write a saved model in a format that runs without Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from twinned.cli import options
from twinned.cli._errors import exit_on_bad_input, print_message, print_warnings
from twinned.cli.predict import load_twin
from twinned.exceptions import MissingExtraError


class Settings(NamedTuple):
    """Options of an export."""

    outputs: list[str]
    confidence: float | None


def _write_onnx(model: Any, path: Path, settings: Settings) -> float | None:
    """Write an ONNX file; return its largest difference to `predict` at the anchors."""
    from twinned.export.onnx import to_onnx

    to_onnx(model, path, outputs=settings.outputs, confidence=settings.confidence)
    if "mean" not in settings.outputs:
        return None
    from twinned.export.onnx.runtime import largest_difference

    try:
        return largest_difference(model, path)
    except MissingExtraError:
        print_message("note", "the file is not compared with predict: pip install onnxruntime.")
        return None


# A writer of each format gets the model, the path and the settings, and returns the largest
# difference to `predict` at the anchors, in standard deviations of y.
_WRITERS: dict[str, Callable[[Any, Path, Settings], float | None]] = {
    ".onnx": _write_onnx,
}


def export_command(
    model: options.SavedModel,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="File to write; its suffix sets the format: .onnx."),
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
    key_file: options.KeyFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Export a saved model to a file that runs without Python.

    Prints the size of the file and the largest difference of its predictions to those of the model,
    on the stored anchors, where onnxruntime is installed.

    For example:

        twinned export houses.twin -o houses.onnx

        twinned export houses.twin -o houses.onnx --outputs mean --confidence 0.9
    """
    with exit_on_bad_input():
        write = _WRITERS.get(output.suffix.lower())
        if write is None:
            known = " or ".join(_WRITERS)
            raise ValueError(f"-o {output}: the name must end in {known}, which sets the format.")
        path = options.check_output_path(output, [model])
        names = [name.strip() for name in outputs.split(",") if name.strip()]
        with print_warnings():
            fitted = load_twin(model, key_file)
            difference = write(fitted, path, Settings(names, confidence))
    facts = {
        "model": str(model),
        "output": str(output),
        "bytes": path.stat().st_size,
        "model_bytes": model.stat().st_size,
        "largest_difference": difference,
    }
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    typer.echo(f"{output}: {facts['bytes']:,} bytes, {facts['model_bytes']:,} of {model.name}")
    if difference is not None:
        typer.echo(
            f"largest difference to predict on the anchors: {difference:.1e} standard deviations "
            "of the target"
        )
