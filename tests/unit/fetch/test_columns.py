from zkconsumer.fetch.columns import ConstantColumns


def test_columns_are_slices_of_one_array():
    columns = ConstantColumns()
    first, second = columns.topic("clicks", 10), columns.topic("clicks", 4000)
    assert first.to_pylist() == ["clicks"] * 10
    assert len(second) == 4000
    assert first.buffers()[2].address == second.buffers()[2].address


def test_a_longer_column_replaces_the_array():
    columns = ConstantColumns()
    assert len(columns.integer(7, 10)) == 10
    assert columns.integer(7, 100_000).to_numpy().tolist() == [7] * 100_000
    assert columns.no_headers(5).null_count == 5


def test_memory_is_bounded():
    columns = ConstantColumns()
    for partition in range(100):
        assert columns.integer(partition, 1 << 18)[0].as_py() == partition
    assert columns._bytes <= 64 << 20
