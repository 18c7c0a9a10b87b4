"""Deferred import of modules that scikit-learn imports, but that most commands do not use.

`scipy.stats` takes about half of the time of `import sklearn`, which uses it in few functions.

It is for commands whose threads import nothing: where one thread imports a submodule of a deferred
module while another one executes that module, each waits for the other. `twinned serve`, which
predicts in threads, defers nothing.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_loader
from threading import RLock
from types import ModuleType
from typing import Any

# The names are those that other modules import from a module: using one of them executes the
# module. Any other attribute, and any submodule, executes it at once.
_DEFERRED: dict[str, tuple[str, ...]] = {
    "scipy.stats": ("chi2", "gmean", "rankdata", "spearmanr"),
    "scipy.interpolate": ("BSpline",),
    "scipy.integrate": ("trapezoid",),
    "numpy.f2py": (),  # imported by `from numpy import *` in scipy
}
_LOCK = RLock()  # another thread waits until a module is complete
_EXECUTING: list[ModuleType] = []  # only the thread that holds the lock is among them


def defer_imports() -> None:
    """Defer the import of modules that are not imported yet in this process."""
    for name in _DEFERRED:
        if name not in sys.modules and (spec := find_spec(name)) is not None:
            module = sys.modules[name] = module_from_spec(spec)
            module.__class__ = _DeferredModule
            package, _, attribute = name.rpartition(".")
            setattr(sys.modules[package], attribute, module)
    if not any(isinstance(finder, _SubmoduleFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _SubmoduleFinder())


class _DeferredModule(ModuleType):
    """A module whose code is executed when it is used; it is a plain module from then on."""

    def __getattr__(self, attribute: str) -> Any:
        if attribute in _DEFERRED[self.__name__] and self not in _EXECUTING:
            return _DeferredAttribute(self, attribute)
        module = _execute(self)
        if module in _EXECUTING:  # its own code uses a name that it has not defined yet
            raise AttributeError(f"module {self.__name__!r} has no attribute {attribute!r}")
        return getattr(module, attribute)


class _DeferredAttribute:
    """A function or an object of a deferred module."""

    def __init__(self, module: ModuleType, name: str) -> None:
        self._module, self._name = module, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(_execute(self._module), self._name)(*args, **kwargs)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(getattr(_execute(self._module), self._name), attribute)


class _SubmoduleFinder(MetaPathFinder):
    """Execute a deferred module before one of its submodules is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = sys.modules.get(fullname.rpartition(".")[0])
        if not isinstance(package, _DeferredModule):
            return None
        _execute(package)
        imported = sys.modules.get(fullname)
        return None if imported is None else spec_from_loader(fullname, _ImportedLoader(imported))


class _ImportedLoader(Loader):
    """Return a submodule that its package has imported, instead of importing it again."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        pass


def _execute(module: ModuleType) -> ModuleType:
    """Execute the code of a deferred module, unless that is done; return the module."""
    with _LOCK:
        if isinstance(module, _DeferredModule) and module not in _EXECUTING:
            spec = module.__spec__
            assert spec is not None
            assert spec.loader is not None
            _EXECUTING.append(module)
            try:
                spec.loader.exec_module(module)
                object.__setattr__(module, "__class__", ModuleType)
            finally:
                _EXECUTING.remove(module)
    return module
