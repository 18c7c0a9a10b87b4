"""Networks in fixed point: arithmetic, the same in C, and the error that it costs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.export.c.conftest import SANITIZERS, with_activation
from twinned.export.c.core import predict_as_c
from twinned.export.c.fixed_arithmetic import FixedMatrix, activation_table, shift
from twinned.export.c.fixed_point import FixedPointCore
from twinned.export.c.reader import read_core


@given(st.integers(-(2**50), 2**50), st.integers(-8, 40))
def test_shift_rounds_to_the_nearest_integer(value, bits):
    exact = value * 2**-bits if bits <= 0 else value / 2**bits
    found = int(shift(np.array([value]), bits)[0])
    assert abs(found - exact) <= 0.5 if bits > 0 else found == exact
    assert int(shift(np.array([-value]), bits)[0]) == -found


def test_quantized_rows_use_their_own_range():
    matrix = np.array([[1e-3, -2e-3], [5.0, 700.0], [0.0, 0.0]], dtype=np.float32)
    fixed = FixedMatrix.quantize(matrix)
    restored = fixed.values / np.exp2(fixed.bits.astype(float))[:, None]
    largest = np.abs(matrix).max(axis=1, keepdims=True)
    assert (np.abs(restored - matrix) <= largest / 32_767).all()


@pytest.mark.parametrize("activation", ["silu", "mish", "tanh"])
def test_tables_increase(activation):
    # the interpolation in C relies on it
    assert (np.diff(activation_table(activation)) >= 0).all()


@pytest.mark.parametrize("kind", ["twin", "plain"])
@pytest.mark.parametrize(
    "activation", ["silu", *(pytest.param(own, marks=pytest.mark.slow) for own in ("relu", "tanh"))]
)
def test_c_equals_the_arithmetic_in_numpy(
    kind, activation, training_rows, neural_twin, plain_networks, queries, run_c
):
    model = with_activation(neural_twin if kind == "twin" else plain_networks, activation)
    rows = queries.astype(np.float32)
    rows[:3] *= 1e6  # far outside: clipped, without overflow
    rows[3] = np.inf
    compiled = run_c(model, rows, flags=SANITIZERS, dtype="int16")
    core = read_core(model)
    known = training_rows[0].astype(np.float32)
    fixed = FixedPointCore(core, known)
    mean = model.predict(queries)
    spread = np.std(mean)
    assert np.abs(compiled.mean - mean)[4:].max() < 3e-3 * spread
    assert np.isfinite(compiled.mean).all()
    simulated, std = predict_as_c(fixed, rows[4:])
    assert np.abs(simulated - mean[4:]).max() < 3e-3 * spread
    assert np.abs(std - model.predict(queries[4:], return_std=True)[1]).max() < 3e-3 * spread


def test_int16_halves_the_tables(neural_twin, run_c, queries):
    single = run_c(neural_twin, queries[:1]).report
    fixed = run_c(neural_twin, queries[:1], dtype="int16").report
    tables = 2 * (513 + 769)  # of the sine and of the activation
    assert fixed.flash_bytes - tables < 0.75 * single.flash_bytes  # anchors stay in float32
    assert 0 < fixed.rms_difference <= fixed.max_difference
