"""How long one accelerator takes for 25 splits × 32 members of 700 rows, and its share of peak.

    python benchmarks/neural_gpu.py            # writes benchmarks/results/neural_gpu.md

Compilation is included, and the cache of compiled programs is empty. Operations are those of the
matrix products alone (a multiply and an add are two), forward and backward; the peak is that of
single precision without tensor cores, as the maker states it, or 2 × what a large product reaches
where the device is unknown.
"""

import argparse
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

RESULTS = Path(__file__).parent / "results"
PEAKS = {"NVIDIA H200": 67e12, "NVIDIA H100": 67e12, "NVIDIA A100": 19.5e12}
N_SPLITS, N_MEMBERS, N_ROWS, N_FEATURES, N_STEPS = 25, 32, 700, 8, 4000


def product_rate(precision):
    """Multiply-adds a second, counted as two, of a large square product."""
    A = jnp.ones((8192, 8192), jnp.float32)
    product = jax.jit(lambda a, b: jnp.matmul(a, b, precision=precision))
    product(A, A).block_until_ready()
    start = time.perf_counter()
    for _ in range(5):
        out = product(A, A)
    out.block_until_ready()
    return 5 * 2 * 8192**3 / (time.perf_counter() - start)


def step_operations(batch_size, hidden, n_frequencies, partners):
    """One step of a member: first layer once a point and side, second for both orders of a pair."""
    points = batch_size // partners
    first = points * N_FEATURES * (1 + 2 * n_frequencies) * hidden * 2
    second = 2 * batch_size * (hidden * hidden + hidden)
    return 2 * 3 * (first + second)  # forward once, backward twice


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=RESULTS / "neural_gpu.md")
    arguments = parser.parse_args()
    jax.config.update("jax_compilation_cache_dir", tempfile.mkdtemp())
    from twinned.models.neural.fitting import N_PARTNERS
    from twinned.neural import TwinNeuralRegressor, fit_many

    rng = np.random.RandomState(0)
    problems = []
    for _ in range(N_SPLITS):
        X = rng.normal(size=(N_ROWS, N_FEATURES))
        problems.append((X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=N_ROWS)))
    estimator = TwinNeuralRegressor(
        n_members=N_MEMBERS, n_folds=4, max_steps=N_STEPS, random_state=0
    )
    times = []
    for _ in range(2):
        start = time.perf_counter()
        fit_many(estimator, problems)
        times.append(time.perf_counter() - start)
    device = jax.devices()[0].device_kind
    measured = {name: product_rate(name) for name in ("highest", "default")}
    peak = PEAKS.get(device, 2 * measured["highest"])
    work = N_SPLITS * N_MEMBERS * N_STEPS * step_operations(256, 128, 16, N_PARTNERS)
    text = "\n".join(
        [
            "# Training on one accelerator",
            "",
            f"{N_SPLITS} splits × {N_MEMBERS} members × {N_STEPS:,} steps of 256 pairs, "
            f"{N_ROWS} rows × {N_FEATURES} features, hidden 128–128, on {device}; "
            "`python benchmarks/neural_gpu.py`.",
            "",
            "| | seconds | TFLOP/s | share of the single-precision peak "
            f"({peak / 1e12:.0f} TFLOP/s) | share of a large product here "
            f"({measured['default'] / 1e12:.0f} TFLOP/s) |",
            "|---|---|---|---|---|",
            *(
                f"| {name} | {seconds:.1f} | {work / seconds / 1e12:.1f} | "
                f"{work / seconds / peak:.1%} | {work / seconds / measured['default']:.1%} |"
                for name, seconds in zip(
                    ("first fit, compiling included", "second fit"), times, strict=True
                )
            ),
            "",
        ]
    )
    arguments.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
