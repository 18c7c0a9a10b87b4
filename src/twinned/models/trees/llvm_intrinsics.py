"""What the kernel asks of the processor: memory by address, bits, and masks as one vector.

numba's own indexing looks for negative numbers and multiplies by lengths that it has to fetch, and
its arrays are counted at every turn; in loops of a few nanoseconds that is most of the time. Here
an array is the memory that it begins at, and the kernel's tests hold it to its bounds.
"""

# mypy: ignore-errors
# Types are what numba infers from the arguments of each call.

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

from twinned.models.trees.anchor_masks import WORDS

_WORD = ir.IntType(64)
_MASK = ir.VectorType(_WORD, WORDS)


def compiled(function: Any) -> Any:
    """Compile on first use; without the lock, so that threads can share the work.

    Stored in numba's cache where there is a folder for it to write to. The cache looks at the
    function's own file alone: after a change here or in `sets`, delete `__pycache__`.
    """
    options = {"nogil": True, "error_model": "numpy"}
    # arrays are not counted; numba has an option for this that is its own, so it may go
    for more in ({"cache": True, "_nrt": False}, {"_nrt": False}):
        try:
            return njit(function, **options, **more)
        except (RuntimeError, KeyError, TypeError):  # no such folder, no such option
            continue
    return njit(function, **options)


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


@intrinsic
def at(typing_context, array, index):
    """`array.ravel()[index]`."""

    def generate(context, builder, signature, arguments):
        return builder.load(_address(context, builder, signature.args[0], *arguments))

    return array.dtype(array, types.int64), generate


@intrinsic
def put(typing_context, array, index, value):
    """`array.ravel()[index] = value`."""

    def generate(context, builder, signature, arguments):
        builder.store(arguments[2], _address(context, builder, signature.args[0], *arguments[:2]))
        return context.get_dummy_value()

    return types.void(array, types.int64, array.dtype), generate


@intrinsic
def fetch(typing_context, array, index):
    """Ask for the memory of `array.ravel()[index]` ahead of its use."""

    def generate(context, builder, signature, arguments):
        place = _address(context, builder, signature.args[0], *arguments)
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [pointer, number, number, number]),
            "llvm.prefetch.p0",
        )
        builder.call(function, [builder.bitcast(place, pointer), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic
def lowest(typing_context, word):
    """The position of the lowest bit that is set in a word that is not 0."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.int64(types.uint64), generate


@intrinsic
def cut(typing_context, masks, whole, table, row, inside, outside):
    """Cut the set `masks[whole]` in two by a row of `table`; how many are inside.

    Those inside go to `masks[inside]`, the others to `masks[outside]`. The words of a mask are one
    vector, for which the compiler takes the widest instructions that the processor has.
    """

    def generate(context, builder, signature, arguments):
        def mask(array, index):
            return _mask(context, builder, signature, arguments, array, index)

        members = builder.load(mask(0, 1), align=8)
        chosen = builder.and_(members, builder.load(mask(2, 3), align=8))
        builder.store(chosen, mask(0, 4), align=8)
        builder.store(builder.xor(members, chosen), mask(0, 5), align=8)
        return _count(builder, chosen)

    number = types.int64
    return number(masks, number, table, number, number, number), generate


@intrinsic
def busy(typing_context, masks, row):
    """Which words of `masks[row]` are not 0, as the bits of a number."""

    def generate(context, builder, signature, arguments):
        mask = builder.load(_mask(context, builder, signature, arguments, 0, 1), align=8)
        some = builder.icmp_unsigned("!=", mask, ir.Constant(_MASK, [0] * WORDS))
        return builder.zext(builder.bitcast(some, ir.IntType(WORDS)), _WORD)

    return types.uint64(masks, types.int64), generate


@intrinsic
def move(typing_context, masks, source, others, target):
    """`others[target] = masks[source]`."""

    def generate(context, builder, signature, arguments):
        here = _mask(context, builder, signature, arguments, 0, 1)
        there = _mask(context, builder, signature, arguments, 2, 3)
        builder.store(builder.load(here, align=8), there, align=8)
        return context.get_dummy_value()

    return types.void(masks, types.int64, others, types.int64), generate


def _mask(
    context: Any, builder: Any, signature: Any, arguments: Any, array: int, index: int
) -> Any:
    """Where the mask begins that two of the arguments name: an array and its row."""
    start = builder.mul(arguments[index], _WORD(WORDS))
    place = _address(context, builder, signature.args[array], arguments[array], start)
    return builder.bitcast(place, _MASK.as_pointer())


def _count(builder: Any, mask: Any) -> Any:
    name = f"v{WORDS}i64"
    ones = get_or_insert_function(
        builder.module, ir.FunctionType(_MASK, [_MASK]), f"llvm.ctpop.{name}"
    )
    total = get_or_insert_function(
        builder.module, ir.FunctionType(_WORD, [_MASK]), f"llvm.vector.reduce.add.{name}"
    )
    return builder.call(total, [builder.call(ones, [mask])])
