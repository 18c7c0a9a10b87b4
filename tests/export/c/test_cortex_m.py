"""Exported headers on an emulated Cortex-M4: the self-test passes."""

import pytest

from tests.export.c import cortex_m
from twinned import TwinRegressor, thin
from twinned.export.c import to_c

pytestmark = pytest.mark.slow


@pytest.fixture
def board():
    """The module that runs programs; skips where a program is missing."""
    missing = cortex_m.missing_programs(cortex_m.COMPILER, "qemu-system-arm")
    if missing:
        reason = f"not installed: {', '.join(missing)}"
        print(reason)
        pytest.skip(reason)
    return cortex_m


@pytest.mark.parametrize("processor", cortex_m.PROCESSORS)
def test_self_test(processor, board, training_rows, tmp_path):
    twin = TwinRegressor(random_state=0).fit(*training_rows)
    report = to_c(thin(twin, 4), tmp_path / "model.h", name="model")
    text = report.path.read_text("utf-8")
    failed, instructions = board.run_self_test(text, processor)
    assert failed == 0
    assert instructions > 1000
    flash = board.flash_bytes(text, processor)
    assert 0 < flash - report.flash_bytes < 16_000  # code, beside the tables


def test_failed_rows_are_counted(board, training_rows, tmp_path):
    twin = TwinRegressor(random_state=0).fit(*training_rows)
    text = to_c(thin(twin, 2), tmp_path / "model.h", name="model").path.read_text("utf-8")
    start = text.index("model_test_values[10] = {")
    first = text.index("\n", start) + 1
    end = text.index(",", first)
    wrong = f"{text[:first]}    1e9f{text[end:]}"
    assert board.run_self_test(wrong, "M4F")[0] == 1
