"""Exceptions and warnings of twinned. Each message shows the value and how to correct it."""

import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class UnsuitableDataError(ValueError):
    """A model cannot be fitted to the given rows; a blend skips such a member."""


class MemoryLimitError(UnsuitableDataError):
    """The requested pairs do not fit into `memory_limit`."""


class IntegrityError(ValueError):
    """A data file or a model file is damaged, or not of the expected kind."""


class MissingExtraError(ImportError):
    """A requested feature needs a library that is not installed."""


class VersionMismatchWarning(UserWarning):
    """A model was saved by other library versions than those that load it."""


class TableWarning(UserWarning):
    """Something about the rows of a table; models of folds and members leave it to the final one.

    A category or the values of a feature may be absent from a fold, and its held-out rows may be
    outside of its training rows.
    """


class UnknownCategoryWarning(TableWarning):
    """A category is not in the training set; it is treated as different from every known one."""


class TextFeatureWarning(TableWarning):
    """A column of text is used as a category, but seems to be numeric, an identifier or a date."""


class UnknownBatchWarning(UserWarning):
    """A batch has no known rows; its offset is the mean of all batches."""


class MissingBatchWarning(UserWarning):
    """A model with batches predicts without `batch`: with the mean offset of all batches."""


class ShiftWarning(TableWarning):
    """Too many rows lie outside of the training rows for prediction intervals to hold."""


class UnreachedTargetWarning(UserWarning):
    """No row was found that reaches the wanted target; the closest ones are returned."""


class LeakingValidationWarning(UserWarning):
    """A base estimator validates on pairs that share points with its training pairs."""


class SkippedMemberWarning(UserWarning):
    """A member of a blend was not fitted, for lack of time or by an `UnsuitableDataError`."""


_WARNED_LINES: set[tuple[type[Warning], str, int]] = set()


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn of the line that called this package, also by scikit-learn: once for each such line."""
    current = inspect.currentframe()
    level, frame = 2, current and current.f_back
    assert frame is not None, "Python has stack frames"
    packages = ("twinned", "sklearn", "joblib")
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in packages:
        level, frame = level + 1, frame.f_back
    # "default" forgets lines when filters change, as they do in each validation of an array
    if (line := (category, frame.f_code.co_filename, frame.f_lineno)) not in _WARNED_LINES:
        _WARNED_LINES.add(line)
        warnings.warn(message, category, stacklevel=level)


def install_extra(name: str) -> str:
    """The command that installs an extra: of a clone, until a version is on the package index."""
    return f"pip install -e '.[{name}]' in a clone of twinned"


@contextmanager
def require_extra(message: str) -> Iterator[None]:
    """Raise a `MissingExtraError` where an import fails."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(message) from error
