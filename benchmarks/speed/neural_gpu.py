"""Seconds of one accelerator for 25 splits × 32 members of 700 rows, and its share of peak.

Compilation is included, and the cache of compiled programs is empty. Operations are those of the
matrix products alone (a multiply and an add are two), forward and backward; the peak is that of
single precision without tensor cores, as the maker states it, or 2 × the rate of a large product
where the device is unknown.

    python -m benchmarks.speed.neural_gpu            # writes benchmarks/results/neural_gpu.md
"""

import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import frame

PEAKS = {"NVIDIA H200": 67e12, "NVIDIA H100": 67e12, "NVIDIA A100": 19.5e12}
FITS = ("first fit, compiling included", "second fit")
N_SPLITS, N_MEMBERS, N_ROWS, N_FEATURES, N_STEPS = 25, 32, 700, 8, 4000


def product_rate(precision):
    """Return the operations per second of a large square product; a multiply-add is two."""
    A = jnp.ones((8192, 8192), jnp.float32)
    product = jax.jit(lambda a, b: jnp.matmul(a, b, precision=precision))
    product(A, A).block_until_ready()
    start = time.perf_counter()
    for _ in range(5):
        out = product(A, A)
    out.block_until_ready()
    return 5 * 2 * 8192**3 / (time.perf_counter() - start)


def step_operations(batch_size, hidden, n_frequencies, partners):
    """Return the operations of one step of a member.

    The first layer is computed once per point and side, the second for both orders of a pair.
    """
    points = batch_size // partners
    first = points * N_FEATURES * (1 + 2 * n_frequencies) * hidden * 2
    second = 2 * batch_size * (hidden * hidden + hidden)
    return 2 * 3 * (first + second)  # forward once, backward twice


def main():
    arguments = frame.parse_arguments(__doc__, output=frame.RESULTS / "neural_gpu.md")
    jax.config.update("jax_compilation_cache_dir", tempfile.mkdtemp())
    from twinned.models.neural.fitting import N_PARTNERS
    from twinned.neural import NeuralTraining, TwinNeuralRegressor, fit_many

    rng = np.random.RandomState(0)
    problems = []
    for _ in range(N_SPLITS):
        X = rng.normal(size=(N_ROWS, N_FEATURES))
        problems.append((X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=N_ROWS)))
    training = NeuralTraining(n_folds=1, max_steps=N_STEPS)
    estimator = TwinNeuralRegressor(n_members=N_MEMBERS, training=training, random_state=0)
    device = jax.devices()[0].device_kind
    times = []
    for _ in range(2):
        start = time.perf_counter()
        fit_many(estimator, problems)
        times.append(time.perf_counter() - start)
    measured = {name: product_rate(name) for name in ("highest", "default")}
    peak = PEAKS.get(device, 2 * measured["highest"])
    work = N_SPLITS * N_MEMBERS * N_STEPS * step_operations(256, 128, 16, N_PARTNERS)
    rows = [
        f"{name} | {seconds:.1f} | {work / seconds / 1e12:.1f} | {work / seconds / peak:.1%} | "
        f"{work / seconds / measured['default']:.1%}"
        for name, seconds in zip(FITS, times, strict=True)
    ]
    header = (
        f" | seconds | TFLOP/s | share of the single-precision peak ({peak / 1e12:.0f} TFLOP/s) | "
        f"share of a large product here ({measured['default'] / 1e12:.0f} TFLOP/s)"
    )
    lines = [
        "# Training on one accelerator",
        "",
        f"{N_SPLITS} splits × {N_MEMBERS} members × {N_STEPS:,} steps of 256 pairs, "
        f"{N_ROWS} rows × {N_FEATURES} features, hidden 128–128, on {device}; "
        "`python -m benchmarks.speed.neural_gpu`.",
        "",
        *frame.markdown_table(header, rows),
    ]
    frame.write_markdown(arguments.output, lines)


if __name__ == "__main__":
    main()
