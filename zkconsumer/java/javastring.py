"""Hash codes and string order as ``java.lang.String`` defines them.

Members of one group must compute the same assignment, so both must equal the JVM's results exactly
(jvm-consumer.md#identifiers, jvm-consumer.md#assignment).
"""

_MASK = 0xFFFFFFFF
_SIGN = 0x80000000


def java_hash(text: str) -> int:
    """``String.hashCode`` of ``text``: signed 32 bit, ``h = 31 * h + unit`` over its UTF-16 code units.

    >>> java_hash("page-views-10"), java_hash("page-views-0")
    (-470030500, -292256941)
    """
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & _MASK
    return value - (1 << 32) if value & _SIGN else value


def java_order(text: str) -> bytes:
    """Sort key that orders texts as ``String.compareTo`` does: by UTF-16 code unit.

    Python orders by code point, which differs above U+FFFF.

    >>> sorted(["g_a.b-0", "g_a-1-0", "g_a_1-0", "g_a-0"], key=java_order)
    ['g_a-0', 'g_a-1-0', 'g_a.b-0', 'g_a_1-0']
    """
    return text.encode("utf-16-be", "surrogatepass")


def java_abs_mod(value: int, divisor: int) -> int:
    """``Utils.abs(value) % divisor`` in 32-bit arithmetic, where the absolute value of MIN_INT is 0.

    See jvm-consumer.md#threads.
    """
    value &= _MASK
    if value & _SIGN:
        value -= 1 << 32
    return (0 if value == -_SIGN else abs(value)) % divisor
