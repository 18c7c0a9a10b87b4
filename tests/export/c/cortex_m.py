"""Programs for Cortex-M processors: compiled, measured, and run under QEMU.

Needs `arm-none-eabi-gcc` with newlib and, for runs, `qemu-system-arm` (Debian: `gcc-arm-none-eabi`,
`libnewlib-arm-none-eabi`, `qemu-system-arm`). The emulated board is an MPS2 with a Cortex-M4
(`mps2-an386`); code for a Cortex-M0+ runs on it, too. QEMU counts one nanosecond for each
instruction, and SysTick counts every 40 of them.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

COMPILER = "arm-none-eabi-gcc"
PROCESSORS = {
    "M0+": ["-mcpu=cortex-m0plus", "-mfloat-abi=soft"],
    "M4F": ["-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"],
}
FLAGS = ["-std=c99", "-mthumb", "-Os", "-ffunction-sections", "-fdata-sections"]
LINKER_FLAGS = ["-nostartfiles", "--specs=nosys.specs", "-Wl,--gc-sections", "-lm"]
_TICK = 40  # nanoseconds, at 25 MHz

_LAYOUT = """
MEMORY { flash (rx) : ORIGIN = 0, LENGTH = 64M  ram (rwx) : ORIGIN = 0x20000000, LENGTH = 4M }
ENTRY(reset)
SECTIONS {
    .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) . = ALIGN(4); } > flash
    .ARM.exidx : { *(.ARM.exidx*) } > flash
    .data : { data_start = .; *(.data*) . = ALIGN(4); data_end = .; } > ram AT > flash
    data_load = LOADADDR(.data);
    .bss : { bss_start = .; *(.bss*) *(COMMON) . = ALIGN(4); bss_end = .; end = .; } > ram
}
"""
_STARTUP = """
#include <stdint.h>
extern uint32_t data_start, data_end, data_load, bss_start, bss_end;
int main(void);
void reset(void);

__attribute__((section(".vectors"), used)) static void (*const vectors[2])(void) = {
    (void (*)(void))0x20400000, reset
};

int semihosting(int operation, const void *argument);
__asm__(".thumb\\n.global semihosting\\n.thumb_func\\nsemihosting:\\nbkpt 0xab\\nbx lr\\n");

void reset(void)
{
    const uint32_t *from = &data_load;
    uint32_t *to, block[2];
    *(volatile uint32_t *)0xE000ED88 = 0xFu << 20; /* the floating-point unit */
    for (to = &data_start; to < &data_end; to++) {
        *to = *from++;
    }
    for (to = &bss_start; to < &bss_end; to++) {
        *to = 0;
    }
    block[0] = 0x20026; /* the program has ended */
    block[1] = (uint32_t)main();
    semihosting(0x20, block);
    for (;;) {
    }
}
"""
_PROGRAM = """
#include <stdint.h>
#include "model.h"
int semihosting(int operation, const void *argument);
#define SYSTICK ((volatile uint32_t *)0xE000E010)

static volatile float input[MODEL_N_FEATURES], result;

/* volatile: the compiler must not move the prediction before the first reading of the clock */
static __attribute__((noinline)) void predict_once(void)
{
    float row[MODEL_N_FEATURES];
    int i;
    for (i = 0; i < MODEL_N_FEATURES; i++) {
        row[i] = input[i];
    }
    result = model_predict(row);
}

static void print(uint32_t value)
{
    char text[12] = "0000000000\\n";
    int i;
    for (i = 9; i >= 0; i--) {
        text[i] = (char)('0' + value % 10);
        value /= 10;
    }
    semihosting(0x04, text);
}

int main(void)
{
    uint32_t start, ticks;
    int i;
    for (i = 0; i < MODEL_N_FEATURES; i++) {
        input[i] = model_test_rows[i];
    }
    SYSTICK[1] = 0xFFFFFF;
    SYSTICK[2] = 0;
    SYSTICK[0] = 5;
    start = SYSTICK[2];
    predict_once();
    ticks = (start - SYSTICK[2]) & 0xFFFFFF;
    print(ticks);
    return SELF_TEST;
}
"""
_ONLY_PREDICT = """
#include "model.h"
volatile float input[MODEL_N_FEATURES], result;
int main(void)
{
    float row[MODEL_N_FEATURES];
    int i;
    for (i = 0; i < MODEL_N_FEATURES; i++) {
        row[i] = input[i];
    }
    result = model_predict(row);
    return 0;
}
"""


def missing_programs(*names):
    """The programs that are not installed."""
    return [name for name in names if shutil.which(name) is None]


def build(folder, header, processor, program):
    """Compile a program that includes `model.h`, and return its file."""
    folder = Path(folder)
    files = {"model.h": header, "main.c": program, "startup.c": _STARTUP, "layout.ld": _LAYOUT}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    sources = [str(folder / name) for name in ("main.c", "startup.c")]
    command = [COMPILER, *PROCESSORS[processor], *FLAGS, *sources, "-o", str(folder / "a.elf")]
    subprocess.run([*command, "-T", str(folder / "layout.ld"), *LINKER_FLAGS], check=True)
    return folder / "a.elf"


def flash_bytes(header, processor, program=_ONLY_PREDICT):
    """The bytes of code and constants of a program that predicts one row, startup included."""
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder, header, processor, program)
        sizes = subprocess.run(
            ["arm-none-eabi-size", program], check=True, capture_output=True, text=True
        )
    text, data, _ = sizes.stdout.splitlines()[1].split()[:3]
    return int(text) + int(data)


def run_self_test(header, processor):
    """The number of failed test rows, and the instructions of one prediction (to 40)."""
    program = _PROGRAM.replace("SELF_TEST", "model_self_test()")
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder, header, processor, program)
        command = ["qemu-system-arm", "-machine", "mps2-an386", "-nographic", "-icount", "shift=0"]
        command += ["-semihosting-config", "enable=on,target=native", "-kernel", str(program)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
        )
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip().isdigit()]
    if not lines:
        raise RuntimeError(f"QEMU returned {done.returncode}: {done.stderr[:500]}")
    return done.returncode, int(lines[-1]) * _TICK
