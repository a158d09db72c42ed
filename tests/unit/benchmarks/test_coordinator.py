from benchmarks.coordinator import timed_assignment


def test_an_assignment_is_timed_with_the_memory_of_its_process():
    for mixed in (False, True):
        seconds, mebibytes = timed_assignment(100, mixed)
        assert seconds > 0
        assert mebibytes > 1
