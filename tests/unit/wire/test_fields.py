"""Fields: the parser of responses with counts and tagged fields that no broker sends."""

import struct
import tracemalloc

import pytest

from zkconsumer.errors import ProtocolError
from zkconsumer.wire.fields import Fields, encode_string, is_encodable
from zkconsumer.wire.response import WINDOW_BYTES

PAIR = struct.Struct(">qq")
MANY = WINDOW_BYTES // 17 * 2 + 3


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def packed(pairs, tagged=()):
    """A flexible array; the items whose numbers are in ``tagged`` have a tagged field of three bytes."""
    tags = {True: b"\1\5\3abc", False: b"\0"}
    items = [PAIR.pack(*pair) + tags[number in tagged] for number, pair in enumerate(pairs)]
    return varint(len(pairs) + 1) + b"".join(items)


@pytest.mark.parametrize("tagged", [(), (0,), (1, 2), (MANY - 1,), range(0, MANY, 2)])
def test_items_are_found_between_tagged_fields(tagged):
    pairs = [(number, -number) for number in range(MANY)]
    body = memoryview(packed(pairs, tagged) + b"after")
    for wanted in (True, False):
        fields = Fields(body, flexible=True)
        found = fields.packed(PAIR, wanted=wanted)
        assert list(PAIR.iter_unpack(found)) == (pairs if wanted else [])
        assert fields.take(struct.Struct("5s")) == (b"after",)


@pytest.mark.parametrize("flexible", [False, True])
def test_unwanted_items_take_no_memory(flexible):
    count = 1 << 18
    items = bytes(count * (PAIR.size + flexible))
    body = memoryview((varint(count + 1) if flexible else struct.pack(">i", count)) + items)
    fields = Fields(body, flexible=flexible)
    tracemalloc.start()
    try:
        assert fields.packed(PAIR, wanted=False) == b""
        assert tracemalloc.get_traced_memory()[1] < 4 * WINDOW_BYTES
    finally:
        tracemalloc.stop()
    fields.end()


@pytest.mark.parametrize("take", [Fields.count, Fields.data, lambda fields: fields.packed(PAIR, wanted=True)])
@pytest.mark.parametrize("flexible", [False, True])
def test_a_count_beyond_the_end_is_refused_at_once(take, flexible):
    head = varint(2**31) if flexible else struct.pack(">i", 2**31 - 1)
    with pytest.raises(ProtocolError, match="2147483647 items are announced, but 100 bytes are left"):
        take(Fields(memoryview(head + bytes(100)), flexible=flexible))


def test_a_count_that_fits_only_without_the_size_of_its_items_is_refused():
    with pytest.raises(ProtocolError, match="100 items of 16 bytes are announced, but 100 bytes are left"):
        Fields(memoryview(struct.pack(">i", 100) + bytes(100))).packed(PAIR, wanted=True)


def test_a_varint_ends_after_five_bytes():
    with pytest.raises(ProtocolError, match="longer than five bytes"):
        Fields(memoryview(b"\xff" * 6), flexible=True).count()


@pytest.mark.parametrize(
    ("name", "carried"),
    [("t" * 32_767, True), ("t" * 32_768, False), ("\u00fc" * 16_384, False), ("\ud800", False), ("", True)],
    ids=["longest", "longer", "longer in UTF-8", "surrogate", "empty"],
)
def test_a_request_cannot_carry_every_name_of_a_znode(name, carried):
    assert is_encodable(name) is carried
    if carried:
        assert encode_string(name)[2:] == name.encode()
