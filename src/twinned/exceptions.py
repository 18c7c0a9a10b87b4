"""Errors and warnings. Each message shows the offending value and the way out."""


class MemoryLimitError(ValueError):
    """The pairs asked for do not fit into `memory_limit`."""


class IntegrityError(ValueError):
    """A data file or a model file is not what it should be, and is refused."""


class MissingExtraError(ImportError):
    """What was asked for needs a library that is not installed."""


class VersionMismatchWarning(UserWarning):
    """A model was saved by other library versions than those that load it."""


class UnknownCategoryWarning(UserWarning):
    """A category turned up that the fit never saw; it differs from every known one."""


class IgnoredValidationSetWarning(UserWarning):
    """A validation set was given to a base estimator that cannot use one."""


class LeakingValidationWarning(UserWarning):
    """A base estimator validates by pairs that share points with those it learns from."""


class GrowingInconsistencyWarning(UserWarning):
    """Relabelling loops round after round made them less consistent, not more."""
