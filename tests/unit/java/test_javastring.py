from zkconsumer.java.javastring import java_abs_mod, java_hash, java_order


def test_hash_of_texts_that_the_jvm_hashed():
    expected = {
        "": 0,
        "page-views-10": -470030500,
        "page-views-0": -292256941,
        "order-lines-0": -1244344989,
        "orders-0": 1234322248,
        "payments-0": 1612905872,
        "polygenelubricants": -(2**31),
    }
    assert {text: java_hash(text) for text in expected} == expected


def test_hash_uses_utf16_code_units():
    assert java_hash("\N{GRINNING FACE}") == 0xD83D * 31 + 0xDE00


def test_order_is_by_utf16_code_unit_not_code_point():
    private_use, emoji = "\ue000", "\N{GRINNING FACE}"
    assert private_use < emoji
    assert java_order(emoji) < java_order(private_use)


def test_thread_ids_sort_as_text():
    ids = [f"g_c-{number}" for number in range(12)]
    assert sorted(ids, key=java_order) == ["g_c-0", "g_c-1", "g_c-10", "g_c-11", *(f"g_c-{n}" for n in range(2, 10))]


def test_fetcher_numbers_that_the_jvm_chose():
    def fetcher(topic: str, partition: int, fetchers: int) -> int:
        return java_abs_mod(31 * java_hash(topic) + partition, fetchers)

    assert [fetcher("t8", 0, 3), fetcher("t8", 7, 3), fetcher("orders", 2, 3)] == [1, 2, 0]
    assert [fetcher("t8", 7, 4), fetcher("page-views", 1, 4), fetcher("t8", 0, 8)] == [3, 1, 4]


def test_absolute_value_of_the_smallest_integer_is_zero():
    assert java_abs_mod(-(2**31), 7) == 0
