"""The picture can be drawn for any timeline."""

from pathlib import Path

import pytest

from demo.picture import draw
from demo.timeline import Event, Sample, Timeline

NAMES = {"a": "consumer-1", "b": "consumer-2"}


def timeline() -> Timeline:
    seen = Timeline()
    seen.samples["first"] = [
        Sample(n / 10, frozenset("ab"), ("a", "b" if n < 50 else "a", None), (n, n, None), (100, 100, 100))
        for n in range(80)
    ]
    seen.samples["second"] = [Sample(9, frozenset("c"), ("c", "c", "c"), (100, 100, 100), (100, 100, 100))]
    seen.samples["unseen"] = []
    seen.events += [Event(1, "start"), Event(3, "SIGKILL consumer-2", "b"), Event(7.9, "end")]
    return seen


@pytest.mark.parametrize("name", ["picture.png", "with spaces and ünïcode.png"])
def test_a_picture_is_written_and_written_again(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("former")
    draw(timeline(), NAMES, "three partitions", path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    assert path.stat().st_size > 20_000
