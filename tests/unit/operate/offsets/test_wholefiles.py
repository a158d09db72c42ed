"""What is written where something exists: a file, a symbolic link, a pipe, a device."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from zkconsumer.operate.offsets.wholefiles import write_output, write_whole


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.fixture
def device(tmp_path):
    path = tmp_path / "null"
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        path.write_bytes(b"")
    except PermissionError:
        pytest.skip("only root makes devices, and some file systems have none")
    return path


@pytest.mark.parametrize("write", [write_whole, write_output])
def test_the_file_that_a_symbolic_link_leads_to_is_replaced(tmp_path, write):
    (tmp_path / "backup").mkdir()
    target, link = tmp_path / "backup" / "offsets", tmp_path / "current.offsets"
    link.symlink_to(target)
    for text in ("first", "second"):
        write(link, text)
        assert (link.is_symlink(), target.read_text(), list(target.parent.iterdir())) == (True, text, [target])


def test_output_goes_into_a_pipe(pipe):
    with ThreadPoolExecutor() as threads:
        read = threads.submit(pipe.read_text)
        write_output(pipe, "offsets\n")
        assert read.result(timeout=30) == "offsets\n"
    assert pipe.is_fifo()


def test_output_goes_to_a_device(device):
    write_output(device, "offsets\n")
    assert device.is_char_device()


def test_output_goes_into_a_pipe_that_has_no_path():
    reader, writer = os.pipe()
    with os.fdopen(reader) as stream:
        write_output(Path(f"/proc/self/fd/{writer}"), "offsets\n")  # as /dev/stdout
        os.close(writer)
        assert stream.read() == "offsets\n"


def test_a_file_that_must_be_whole_takes_no_place_of_a_pipe_or_a_device(pipe, device):
    for path in (pipe, device):
        with pytest.raises(FileExistsError, match="no regular file"):
            write_whole(path, "plan")
    assert (pipe.is_fifo(), device.is_char_device()) == (True, True)
    assert sorted(pipe.parent.iterdir()) == [device, pipe]
