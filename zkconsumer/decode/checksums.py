"""Checksums for the compiled parts of the decoder: CRC-32C (batches of format 2), CRC-32 (messages of formats 0 and 1).

Both are compiled into the functions that use them, since a call into a library costs more than the checksum of a short
batch, and takes the interpreter lock. x86-64 processors of the last fifteen years have an instruction for CRC-32C and
one for carry-less multiplication, with which CRC-32 is computed for 64 bytes at a time. Other processors use tables, at
about a tenth of that speed. numba's target decides which variant is compiled; it is part of the file name of the
machine code (``codecache.py``).

Sources: "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Gopal et al., Intel, 2009) for
folding; "A Systematic Approach to Building High Performance Software-based CRC Generators" (Kounavis and Berry, 2005)
for eight tables. CRCs are kept bit-reflected, as both formats do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba.core.registry import cpu_target

from zkconsumer.decode.compiled import cgutils, intrinsic, load_byte, load_word, njit, types

_CRC32C_POLYNOMIAL: Final = 0x82F63B78
_CRC32_POLYNOMIAL: Final = 0xEDB88320
_ALL_ONES: Final = 0xFFFFFFFF

_TRIPLE, _, _FEATURES = cpu_target.target_context.codegen().magic_tuple()
_ON_X86_64: Final = _TRIPLE.startswith("x86_64")
_HAS_CRC32C: Final = _ON_X86_64 and "+crc32" in _FEATURES.split(",")
_HAS_MULTIPLICATION: Final = _ON_X86_64 and "+pclmul" in _FEATURES.split(",")

_STRIDE: Final = 512
"""Bytes of each of three runs whose CRC-32C is computed in parallel: an instruction takes three cycles, but one can
begin in each cycle."""
_STRIDE_DOUBLINGS: Final = 9

Table = np.ndarray[tuple[int, ...], np.dtype[np.uint32]]


def _table_of_bytes(polynomial: int) -> Table:
    """The effect of each byte on a CRC."""
    table: Table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> np.uint32(1) ^ np.uint32(polynomial), table >> np.uint32(1))
    return table


def _eight_tables(polynomial: int) -> Table:
    """The effect of a byte that is followed by 0 to 7 others."""
    tables = np.empty((8, 256), np.uint32)
    tables[0] = _table_of_bytes(polynomial)
    for following in range(1, 8):
        tables[following] = tables[following - 1] >> 8 ^ tables[0][tables[following - 1] & 0xFF]
    return tables


def _effect_of_zeros(polynomial: int, doublings: int) -> Table:
    """The effect of ``2 ** doublings`` zero bytes on a CRC, as four tables, one for each of its bytes."""
    tables: Any = _table_of_bytes(polynomial)
    places = np.arange(4, dtype=np.uint32)[:, None] * np.uint32(8)
    crcs = np.arange(256, dtype=np.uint32)[None, :] << places
    effect: Table = crcs >> np.uint32(8) ^ tables[crcs & 0xFF]
    for _ in range(doublings):
        effect = (
            effect[0][effect & 0xFF]
            ^ effect[1][effect >> 8 & 0xFF]
            ^ effect[2][effect >> 16 & 0xFF]
            ^ effect[3][effect >> 24]
        )
    return effect


def _power(exponent: int) -> int:
    """``x ** exponent`` modulo the polynomial of CRC-32, reflected into 33 bits, as folding multiplies by it."""
    remainder = 1 << 31  # of x ** 0, reflected
    for _ in range(exponent):
        remainder = remainder >> 1 ^ (_CRC32_POLYNOMIAL if remainder & 1 else 0)
    return remainder << 1


_CRC32_TABLES: Final = _eight_tables(_CRC32_POLYNOMIAL)
_CRC32C_TABLES: Final = _eight_tables(_CRC32C_POLYNOMIAL)
_AFTER_STRIDE: Final = _effect_of_zeros(_CRC32C_POLYNOMIAL, _STRIDE_DOUBLINGS)
_ONE_BLOCK: Final = (_power(128 + 32), _power(128 - 32))
_FOUR_BLOCKS: Final = (_power(4 * 128 + 32), _power(4 * 128 - 32))

_INT8: Final = ir.IntType(8)
_INT32: Final = ir.IntType(32)
_INT64: Final = ir.IntType(64)
_BLOCK: Final = ir.VectorType(_INT64, 2)
_BLOCK_BYTES: Final = 16
_LANES: Final = 4


@intrinsic  # type: ignore[untyped-decorator]
def _crc32c_of_word(_context: Any, _crc: Any, _word: Any) -> Any:
    """The CRC-32C after eight more bytes."""

    def generate(_codegen: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_INT64, [_INT64, _INT64])
        return builder.call(_instruction(builder, kind, "llvm.x86.sse42.crc32.64.64"), arguments)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _crc32c_of_byte(_context: Any, _crc: Any, _byte: Any) -> Any:
    """The CRC-32C after one more byte."""

    def generate(_codegen: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_INT32, [_INT32, _INT8])
        crc, byte = builder.trunc(arguments[0], _INT32), builder.trunc(arguments[1], _INT8)
        return builder.zext(builder.call(_instruction(builder, kind, "llvm.x86.sse42.crc32.32.8"), [crc, byte]), _INT64)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _fold(_context: Any, _crc: Any, _address: Any, _blocks: Any) -> Any:
    """Two words whose CRC-32, begun with 0, is that of ``blocks`` blocks of 16 bytes, begun with ``crc``."""

    def generate(codegen: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        folded = _Folding(builder, *arguments).folded()
        words = [builder.extract_element(folded, ir.Constant(_INT32, place)) for place in range(2)]
        return codegen.make_tuple(builder, signature.return_type, words)

    return types.UniTuple(types.uint64, 2)(types.uint64, types.intp, types.intp), generate


def _instruction(builder: Any, kind: Any, name: str) -> Any:
    return cgutils.get_or_insert_function(builder.module, kind, name)


class _Folding:
    """Emits the loop that folds blocks: at least one; four side by side as long as there are enough of them.

    Args:
        builder: builder of the function that is being compiled.
        crc: CRC of the bytes before.
        address: address of the first block.
        blocks: number of blocks.
    """

    def __init__(self, builder: Any, crc: Any, address: Any, blocks: Any) -> None:
        self._builder = builder
        self._lanes = [cgutils.alloca_once(builder, _BLOCK) for _ in range(_LANES)]
        self._at = cgutils.alloca_once_value(builder, address)  # the last block that lane 0 has taken
        self._left = cgutils.alloca_once_value(builder, blocks)  # including that block
        before = builder.insert_element(ir.Constant(_BLOCK, [0, 0]), crc, ir.Constant(_INT32, 0))
        builder.store(builder.xor(self._loaded(address, 0), before), self._lanes[0])
        self._fold_four_at_a_time()
        self._fold_one_at_a_time()

    def folded(self) -> Any:
        """The remaining block."""
        return self._builder.load(self._lanes[0])

    def _fold_four_at_a_time(self) -> None:
        builder, step = self._builder, _constant(_LANES * _BLOCK_BYTES)
        with builder.if_then(builder.icmp_signed(">=", builder.load(self._left), _constant(2 * _LANES))):
            for number in range(1, _LANES):
                builder.store(self._loaded(builder.load(self._at), number), self._lanes[number])
            with self._while(lambda: builder.icmp_signed(">=", builder.load(self._left), _constant(2 * _LANES))):
                at = builder.add(builder.load(self._at), step)
                for number, lane in enumerate(self._lanes):
                    self._fold_into(lane, _FOUR_BLOCKS, self._loaded(at, number))
                builder.store(at, self._at)
                builder.store(builder.sub(builder.load(self._left), _constant(_LANES)), self._left)
            for lane in self._lanes[1:]:
                self._fold_into(self._lanes[0], _ONE_BLOCK, builder.load(lane))
            others = _LANES - 1
            builder.store(builder.add(builder.load(self._at), _constant(others * _BLOCK_BYTES)), self._at)
            builder.store(builder.sub(builder.load(self._left), _constant(others)), self._left)

    def _fold_one_at_a_time(self) -> None:
        builder = self._builder
        with self._while(lambda: builder.icmp_signed(">", builder.load(self._left), _constant(1))):
            at = builder.add(builder.load(self._at), _constant(_BLOCK_BYTES))
            self._fold_into(self._lanes[0], _ONE_BLOCK, self._loaded(at, 0))
            builder.store(at, self._at)
            builder.store(builder.sub(builder.load(self._left), _constant(1)), self._left)

    def _fold_into(self, lane: Any, distance: tuple[int, int], block: Any) -> None:
        """Replace a lane by its product with the powers for a distance, and ``block`` added."""
        builder = self._builder
        multiply = _instruction(builder, ir.FunctionType(_BLOCK, [_BLOCK, _BLOCK, _INT8]), "llvm.x86.pclmulqdq")
        value, powers = builder.load(lane), ir.Constant(_BLOCK, list(distance))
        low, high = (builder.call(multiply, [value, powers, ir.Constant(_INT8, half)]) for half in (0x00, 0x11))
        builder.store(builder.xor(builder.xor(low, high), block), lane)

    def _loaded(self, address: Any, number: int) -> Any:
        """The block ``number`` blocks after an address."""
        builder = self._builder
        place = builder.add(address, _constant(number * _BLOCK_BYTES))
        block = builder.load(builder.inttoptr(place, _BLOCK.as_pointer()))
        block.align = 1
        return block

    @contextmanager
    def _while(self, condition: Callable[[], Any]) -> Iterator[None]:
        builder = self._builder
        head, body, after = (builder.append_basic_block(f"fold.{name}") for name in ("head", "body", "after"))
        builder.branch(head)
        builder.position_at_end(head)
        builder.cbranch(condition(), body, after)
        builder.position_at_end(body)
        yield
        builder.branch(head)
        builder.position_at_end(after)


def _constant(value: int) -> Any:
    return ir.Constant(_INT64, value)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _by_tables(tables: Any, crc: Any, word: Any) -> Any:
    """The CRC after eight more bytes."""
    byte = np.uint64(0xFF)
    word ^= crc
    return np.uint64(
        tables[7, word & byte]
        ^ tables[6, word >> np.uint64(8) & byte]
        ^ tables[5, word >> np.uint64(16) & byte]
        ^ tables[4, word >> np.uint64(24) & byte]
        ^ tables[3, word >> np.uint64(32) & byte]
        ^ tables[2, word >> np.uint64(40) & byte]
        ^ tables[1, word >> np.uint64(48) & byte]
        ^ tables[0, word >> np.uint64(56)]
    )


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _by_table(tables: Any, crc: Any, byte: Any) -> Any:
    """The CRC after one more byte."""
    return crc >> np.uint64(8) ^ np.uint64(tables[0, (crc ^ byte) & np.uint64(0xFF)])


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _rest_by_tables(tables: Any, crc: Any, address: Any, length: Any) -> Any:
    while length >= 8:
        crc = _by_tables(tables, crc, load_word(address))
        address += 8
        length -= 8
    while length > 0:
        crc = _by_table(tables, crc, load_byte(address))
        address += 1
        length -= 1
    return crc


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _after_stride(crc: Any) -> Any:
    """A CRC-32C after a stride of zeros."""
    byte = np.uint64(0xFF)
    return np.uint64(
        _AFTER_STRIDE[0, crc & byte]
        ^ _AFTER_STRIDE[1, crc >> np.uint64(8) & byte]
        ^ _AFTER_STRIDE[2, crc >> np.uint64(16) & byte]
        ^ _AFTER_STRIDE[3, crc >> np.uint64(24)]
    )


@njit(nogil=True)  # type: ignore[untyped-decorator]
def crc32c(address: Any, length: Any) -> Any:
    """CRC-32C of the bytes at an address, as int64."""
    crc = np.uint64(_ALL_ONES)
    if not _HAS_CRC32C:
        return np.int64(_rest_by_tables(_CRC32C_TABLES, crc, address, length) ^ np.uint64(_ALL_ONES))
    while length >= 3 * _STRIDE:
        second = third = np.uint64(0)
        for at in range(address, address + _STRIDE, 8):
            crc = _crc32c_of_word(crc, load_word(at))
            second = _crc32c_of_word(second, load_word(at + _STRIDE))
            third = _crc32c_of_word(third, load_word(at + 2 * _STRIDE))
        crc = _after_stride(_after_stride(crc) ^ second) ^ third
        address += 3 * _STRIDE
        length -= 3 * _STRIDE
    while length >= 8:
        crc = _crc32c_of_word(crc, load_word(address))
        address += 8
        length -= 8
    while length > 0:
        crc = _crc32c_of_byte(crc, load_byte(address))
        address += 1
        length -= 1
    return np.int64(crc ^ np.uint64(_ALL_ONES))


@njit(nogil=True)  # type: ignore[untyped-decorator]
def crc32(address: Any, length: Any) -> Any:
    """CRC-32 of the bytes at an address, as int64."""
    crc = np.uint64(_ALL_ONES)
    if _HAS_MULTIPLICATION and length >= 2 * _BLOCK_BYTES:
        blocks = length // _BLOCK_BYTES
        low, high = _fold(crc, address, blocks)
        crc = _by_tables(_CRC32_TABLES, _by_tables(_CRC32_TABLES, np.uint64(0), low), high)
        address += blocks * _BLOCK_BYTES
        length -= blocks * _BLOCK_BYTES
    return np.int64(_rest_by_tables(_CRC32_TABLES, crc, address, length) ^ np.uint64(_ALL_ONES))
