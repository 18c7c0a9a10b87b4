"""Compilation with numba: decorators with a file cache that processes share, and LLVM intrinsics.

numba's own indexing tests for negative indices, loads the lengths of arrays and counts references;
in loops of a few nanoseconds that is most of the time. In the intrinsics, an index is an offset
from the start of a contiguous array, and it is checked only under numba's bounds checking
(`NUMBA_BOUNDSCHECK=1`).
"""

# mypy: ignore-errors
# numba has no type annotations; types are those that it infers from the arguments of each call.

import hashlib
import inspect
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from llvmlite import ir
from numba import config, njit, types
from numba.core.cgutils import do_boundscheck, get_or_insert_function
from numba.extending import intrinsic

from twinned._compat import extend_cache_stamp
from twinned.models.trees.anchor_masks import MASK_WORDS

_OPTIONS = {"nogil": True, "error_model": "numpy"}
# Turns off reference counts of arrays, which cost time. It is not a documented option.
with suppress(KeyError, TypeError):
    njit(lambda: None, _nrt=False)
    _OPTIONS["_nrt"] = False


def compiled(function: object) -> Any:
    """Compile a function that compiled functions call."""
    return njit(function, **_OPTIONS)


def inlined(function: object) -> Any:
    """Compile a function as a part of each compiled function that calls it."""
    return njit(function, inline="always", **_OPTIONS)


def entry_point(function: object) -> Any:
    """Compile a function that Python calls: on first use, or load it from numba's file cache.

    Without a writable folder there is no cache, nor under numba's bounds checking
    (`NUMBA_BOUNDSCHECK=1`), as the cache does not distinguish checked code.
    """
    dispatcher = compiled(function)
    if config.BOUNDSCHECK:
        return dispatcher
    try:
        dispatcher.enable_caching()
    except RuntimeError:  # no writable folder
        return dispatcher
    extend_cache_stamp(dispatcher, _hash_sources(Path(inspect.getfile(function)).parent))
    return dispatcher


def _hash_sources(folder: Path) -> str:
    """Hash the modules of a package: compiled code contains constants and functions of them."""
    sources = [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    return hashlib.sha256(b"".join(sources)).hexdigest()


# --- intrinsics: memory accesses, bit operations, and bit masks as vectors ------------------------

_WORD = ir.IntType(64)


def _pointer(context, builder, array_type, array, index, length=1):
    """Pointer to `array.ravel()[index]`; `length` elements from there on must exist."""
    struct = context.make_array(array_type)(context, builder, array)
    if config.BOUNDSCHECK:
        do_boundscheck(context, builder, index, struct.nitems)
        do_boundscheck(context, builder, builder.add(index, _WORD(length - 1)), struct.nitems)
    return builder.gep(struct.data, [index])


def _mask_pointer(context, builder, signature, arguments, array, row, n_words=MASK_WORDS):
    """Pointer to the first words of a mask: row `arguments[row]` of `arguments[array]`."""
    start = builder.mul(arguments[row], _WORD(MASK_WORDS))
    pointer = _pointer(context, builder, signature.args[array], arguments[array], start, MASK_WORDS)
    return builder.bitcast(pointer, ir.VectorType(_WORD, n_words).as_pointer())


Typing = tuple[object, Callable[..., object]]  # signature, and the function that writes the code


@intrinsic
def read(typing_context: object, array: types.Array, index: types.Type) -> Typing:
    """Return `array.ravel()[index]`."""

    def generate(context, builder, signature, arguments):
        return builder.load(_pointer(context, builder, signature.args[0], *arguments))

    return array.dtype(array, types.int64), generate


@intrinsic
def store(
    typing_context: object, array: types.Array, index: types.Type, value: types.Type
) -> Typing:
    """Set `array.ravel()[index] = value`."""

    def generate(context, builder, signature, arguments):
        builder.store(arguments[2], _pointer(context, builder, signature.args[0], *arguments[:2]))
        return context.get_dummy_value()

    return types.void(array, types.int64, array.dtype), generate


@intrinsic
def prefetch(typing_context: object, array: types.Array, index: types.Type) -> Typing:
    """Load `array.ravel()[index]` into the processor's cache ahead of its use."""

    def generate(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], *arguments)
        byte_pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        arguments = [builder.bitcast(pointer, byte_pointer), number(0), number(3), number(1)]
        _call(builder, "llvm.prefetch.p0", ir.VoidType(), arguments)
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic
def lowest_bit(typing_context: object, word: types.Type) -> Typing:
    """Return the position of the lowest bit that is set in a word other than 0."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.int64(types.uint64), generate


def _split_first_words(n_words):
    """Return the typing function of `split_mask` for the first words of masks."""

    def generate(context, builder, signature, arguments):
        def pointer(array, row):
            return _mask_pointer(context, builder, signature, arguments, array, row, n_words)

        bits = builder.load(pointer(0, 1), align=8)
        common = builder.and_(bits, builder.load(pointer(2, 3), align=8))
        builder.store(common, pointer(0, 4), align=8)
        builder.store(builder.xor(bits, common), pointer(0, 5), align=8)
        per_word = _call(builder, f"llvm.ctpop.v{n_words}i64", common.type, [common])
        return _call(builder, f"llvm.vector.reduce.add.v{n_words}i64", _WORD, [per_word])

    def split(typing_context, masks, whole, table, row, inside, outside):
        """Split `masks[whole]` by `table[row]` and return the number of bits that are in both.

        Those bits are stored in `masks[inside]`, the others in `masks[outside]`. A mask is one
        vector, for which the compiler uses the widest instructions of the processor.
        """
        number = types.int64
        return number(masks, number, table, number, number, number), generate

    return split


split_mask = intrinsic(_split_first_words(MASK_WORDS))
# where the second half of the words is not used
split_half_mask = intrinsic(_split_first_words(MASK_WORDS // 2))


@intrinsic
def nonzero_words(typing_context: object, masks: types.Array, row: types.Type) -> Typing:
    """Return which words of `masks[row]` are not 0, as the bits of a number."""

    def generate(context, builder, signature, arguments):
        mask = builder.load(_mask_pointer(context, builder, signature, arguments, 0, 1), align=8)
        nonzero = builder.icmp_unsigned("!=", mask, ir.Constant(mask.type, [0] * MASK_WORDS))
        return builder.zext(builder.bitcast(nonzero, ir.IntType(MASK_WORDS)), _WORD)

    return types.uint64(masks, types.int64), generate


@intrinsic
def copy_mask(
    typing_context: object,
    source: types.Array,
    source_row: types.Type,
    target: types.Array,
    target_row: types.Type,
) -> Typing:
    """Set `target[target_row] = source[source_row]`."""

    def generate(context, builder, signature, arguments):
        source_pointer = _mask_pointer(context, builder, signature, arguments, 0, 1)
        target_pointer = _mask_pointer(context, builder, signature, arguments, 2, 3)
        builder.store(builder.load(source_pointer, align=8), target_pointer, align=8)
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64), generate


def _call(builder, name, result_type, arguments):
    """Call an intrinsic of LLVM."""
    function_type = ir.FunctionType(result_type, [argument.type for argument in arguments])
    return builder.call(get_or_insert_function(builder.module, function_type, name), arguments)
