"""LLVM intrinsics of the kernel: memory accesses, bit operations, and bit masks as vectors.

numba's own indexing tests for negative indices, loads the lengths of arrays and counts references;
in loops of a few nanoseconds that is most of the time. Here an index is an offset from the start of
a contiguous array, and it is checked only under numba's bounds checking (`NUMBA_BOUNDSCHECK=1`).
"""

# mypy: ignore-errors
# Types are those that numba infers from the arguments of each call.

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import config, types
from numba.core.cgutils import do_boundscheck, get_or_insert_function
from numba.extending import intrinsic

from twinned.models.trees.kernel_types import MASK_WORDS

_WORD = ir.IntType(64)
_MASK = ir.VectorType(_WORD, MASK_WORDS)


def _pointer(
    context: Any, builder: Any, array_type: Any, array: Any, index: Any, length: int = 1
) -> Any:
    """Pointer to `array.ravel()[index]`; `length` elements from there on must exist."""
    struct = context.make_array(array_type)(context, builder, array)
    if config.BOUNDSCHECK:
        do_boundscheck(context, builder, index, struct.nitems)
        do_boundscheck(context, builder, builder.add(index, _WORD(length - 1)), struct.nitems)
    return builder.gep(struct.data, [index])


def _mask_pointer(
    context: Any, builder: Any, signature: Any, arguments: Any, array: int, row: int
) -> Any:
    """Pointer to a mask, given by the positions of two arguments: an array and its row."""
    start = builder.mul(arguments[row], _WORD(MASK_WORDS))
    pointer = _pointer(context, builder, signature.args[array], arguments[array], start, MASK_WORDS)
    return builder.bitcast(pointer, _MASK.as_pointer())


@intrinsic
def load(typing_context, array, index):
    """Return `array.ravel()[index]`."""

    def generate(context, builder, signature, arguments):
        return builder.load(_pointer(context, builder, signature.args[0], *arguments))

    return array.dtype(array, types.int64), generate


@intrinsic
def store(typing_context, array, index, value):
    """Set `array.ravel()[index] = value`."""

    def generate(context, builder, signature, arguments):
        builder.store(arguments[2], _pointer(context, builder, signature.args[0], *arguments[:2]))
        return context.get_dummy_value()

    return types.void(array, types.int64, array.dtype), generate


@intrinsic
def prefetch(typing_context, array, index):
    """Load `array.ravel()[index]` into the processor's cache ahead of its use."""

    def generate(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], *arguments)
        byte_pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte_pointer, number, number, number]),
            "llvm.prefetch.p0",
        )
        arguments = [builder.bitcast(pointer, byte_pointer), number(0), number(3), number(1)]
        builder.call(function, arguments)
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic
def lowest_bit(typing_context, word):
    """Return the position of the lowest bit that is set in a word other than 0."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.int64(types.uint64), generate


def _split_first_words(n_words: int) -> Any:
    """Return the generator of `split_mask` for the first words of masks."""

    def generate(context, builder, signature, arguments):
        vector = ir.VectorType(_WORD, n_words)

        def pointer(array, index):
            found = _mask_pointer(context, builder, signature, arguments, array, index)
            return builder.bitcast(found, vector.as_pointer())

        bits = builder.load(pointer(0, 1), align=8)
        common = builder.and_(bits, builder.load(pointer(2, 3), align=8))
        builder.store(common, pointer(0, 4), align=8)
        builder.store(builder.xor(bits, common), pointer(0, 5), align=8)
        return _count_bits(builder, common)

    return generate


@intrinsic
def split_mask(typing_context, masks, whole, table, row, inside, outside):
    """Split `masks[whole]` by `table[row]` and return the number of bits that are in both.

    Those bits are stored in `masks[inside]`, the others in `masks[outside]`. A mask is one vector,
    for which the compiler uses the widest instructions of the processor.
    """
    number = types.int64
    signature = number(masks, number, table, number, number, number)
    return signature, _split_first_words(MASK_WORDS)


@intrinsic
def split_half_mask(typing_context, masks, whole, table, row, inside, outside):
    """Split masks as `split_mask` does, where the second half of the words is not used."""
    number = types.int64
    signature = number(masks, number, table, number, number, number)
    return signature, _split_first_words(MASK_WORDS // 2)


@intrinsic
def nonzero_words(typing_context, masks, row):
    """Return which words of `masks[row]` are not 0, as the bits of a number."""

    def generate(context, builder, signature, arguments):
        pointer = _mask_pointer(context, builder, signature, arguments, 0, 1)
        mask = builder.load(pointer, align=8)
        nonzero = builder.icmp_unsigned("!=", mask, ir.Constant(_MASK, [0] * MASK_WORDS))
        return builder.zext(builder.bitcast(nonzero, ir.IntType(MASK_WORDS)), _WORD)

    return types.uint64(masks, types.int64), generate


@intrinsic
def copy_mask(typing_context, source, source_row, target, target_row):
    """Set `target[target_row] = source[source_row]`."""

    def generate(context, builder, signature, arguments):
        source_pointer = _mask_pointer(context, builder, signature, arguments, 0, 1)
        target_pointer = _mask_pointer(context, builder, signature, arguments, 2, 3)
        builder.store(builder.load(source_pointer, align=8), target_pointer, align=8)
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64), generate


def _count_bits(builder: Any, mask: Any) -> Any:
    """Return the number of bits that are set in a mask."""
    name = f"v{mask.type.count}i64"
    per_word = get_or_insert_function(
        builder.module, ir.FunctionType(mask.type, [mask.type]), f"llvm.ctpop.{name}"
    )
    total = get_or_insert_function(
        builder.module, ir.FunctionType(_WORD, [mask.type]), f"llvm.vector.reduce.add.{name}"
    )
    return builder.call(total, [builder.call(per_word, [mask])])
