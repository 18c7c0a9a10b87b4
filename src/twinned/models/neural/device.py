"""The device, its threads and the cache of compiled programs that computations in JAX use.

On a CPU, JAX runs every program on all cores, and has no setting for their number. So networks are
computed by CPU devices of their own, which have the threads of `n_jobs`. JAX's own device remains
as it is for other programs of the process. Systems other than Linux have no such devices.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from functools import cache

import jax
from jax.experimental.compilation_cache import compilation_cache

from twinned._compat import jax_cache_folder, jax_is_initialized, make_cpu_client
from twinned.models.resources import count_threads

_MIN_COMPILE_SECONDS = 0.3  # programs that compile faster are not stored
_LOGGER = logging.getLogger("twinned")
_DEVICE_LOCK = threading.Lock()


def platform() -> str:
    """Return the platform that JAX computes on by default here: "cpu", "gpu", …."""
    device = getattr(jax.config, "jax_default_device", None)
    return str(jax.default_backend() if device is None else getattr(device, "platform", device))


@contextlib.contextmanager
def on_device(device: str, n_jobs: int | None) -> Iterator[None]:
    """Compute on a device, with a cache of compiled programs.

    Parameters
    ----------
    device : {"auto", "cpu", "gpu"}
        `"auto"` is the device that JAX prefers; the others are the first one of that kind.
    n_jobs : int or None
        Number of threads of a CPU, as everywhere in scikit-learn.
    """
    _refuse_forked_process()
    with _compilation_cache():
        chosen = _choose_device(device, count_threads(n_jobs))
        with contextlib.nullcontext() if chosen is None else jax.default_device(chosen):
            yield


def _choose_device(device: str, n_threads: int) -> jax.Device | None:
    """The device to compute on; None for JAX's own choice."""
    is_cpu = device == "cpu" or (device == "auto" and platform() == "cpu")
    if is_cpu and (limited := limited_device(n_threads)) is not None:
        return limited
    if device == "auto":
        return None
    try:
        return jax.devices(device)[0]
    except RuntimeError:
        raise ValueError(f"device={device!r} is not available; JAX has {jax.devices()}.") from None


def limited_device(n_threads: int) -> jax.Device | None:
    """A CPU device; None where JAX's own has as few threads, or JAX cannot make one."""
    if not hasattr(os, "sched_setaffinity") or n_threads >= len(os.sched_getaffinity(0)):
        return None
    with _DEVICE_LOCK:
        return _make_device(n_threads)


@cache
def _make_device(n_threads: int) -> jax.Device | None:
    try:
        return _make_client(n_threads).local_devices()[0]
    except (AttributeError, ImportError, OSError, TypeError, RuntimeError) as error:
        _LOGGER.warning("JAX uses all cores, not %d threads (%s)", n_threads, error)
        return None


def _make_client(n_threads):
    """A CPU client with this number of threads.

    A client has as many threads as its creator may use cores. These are restricted for the calling
    thread while the client is made, and restored for that and for the new threads.
    """
    cores, threads = os.sched_getaffinity(0), _thread_ids()
    os.sched_setaffinity(0, set(sorted(cores)[:n_threads]))
    try:
        return make_cpu_client()
    finally:
        for thread in {0, *_thread_ids()} - threads:
            with contextlib.suppress(OSError):  # it has ended
                os.sched_setaffinity(thread, cores)


def _thread_ids() -> set[int]:
    """The threads of this process."""
    return {int(name) for name in os.listdir("/proc/self/task")}


# --- forked processes ---------------------------------------------------------------------------

_forked_after_start = False


def _mark_forked_process() -> None:
    global _forked_after_start
    _forked_after_start = _forked_after_start or jax_is_initialized()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked_process)


def _refuse_forked_process() -> None:
    """Raise in a process that was forked from one in which JAX was running: it would hang."""
    if _forked_after_start:
        raise RuntimeError(
            "This process was forked from one that had used JAX, so networks would hang. Start "
            "processes by spawn: multiprocessing.get_context('spawn'), or joblib's default."
        )


@contextlib.contextmanager
def _compilation_cache() -> Iterator[None]:
    """Context in which this thread stores compiled programs in the user's cache folder.

    A folder configured by the user is left alone.
    """
    if getattr(jax.config, "jax_compilation_cache_dir", None):
        yield
        return
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    try:
        with jax_cache_folder(os.path.join(root, "twinned", "compiled"), _MIN_COMPILE_SECONDS):
            yield
    finally:
        # JAX opens the folder at the first program that it compiles, and would go on using it for
        # programs of others
        compilation_cache.reset_cache()
