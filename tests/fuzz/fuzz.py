"""Fuzz the code that parses bytes of brokers: ``python -m tests.fuzz.fuzz [MINUTES] [TARGET ...]`` (``make fuzz``).

Targets are ``records``, the decoder and the parser of fetch responses, and ``login``, a connection from its first byte:
frames, versions, the login and the answers to the first requests. They share the time; without a name all run.

It begins with the golden captures, valid conversations and the kept corpus. It also mutates inside batches and
compressed ones, and corrects lengths and checksums, so that mutants pass the first check. The kernels run in memory
that ends before an inaccessible page. A crash, a hang of 10 s, or 2 GiB of memory (the fuzzer's own tables grow) ends
it and leaves the input in ``.fuzz``. ``--keep`` then writes the inputs that reached new code into ``tests/fuzz``, which
the unit tests replay.
"""

import random
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import atheris
import cramjam

with atheris.instrument_imports(
    include=[
        "zkconsumer.decode",
        "zkconsumer.fetch",
        "zkconsumer.wire",
        "kafka.net.sasl",
        "tests.fuzz.target",
        "tests.fuzz.login",
    ],
    exclude=["pyarrow"],
):
    from tests.fuzz import login
    from tests.fuzz import target as records_target

from tests.fixtures.batches import compress
from tests.fuzz.corpus import archive_of, first_inputs, kept_inputs
from tests.fuzz.frames import frames, seal

WORK = Path(".fuzz")
_HEADER = 61
_CODECS = {1: "gzip", 2: "snappy-raw", 3: "lz4", 4: "zstd"}
_PLAIN_LIMIT = 1 << 16
_KEPT_BYTES = 80_000
_PER_ENTRY = 170  # bytes of the archive itself


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """One change: anywhere, or inside a batch, whose length and checksum are corrected."""
    draw = random.Random(seed)
    whole = frames(data[1:]) if data[:1] == b"\0" else []
    if not whole or draw.random() < 0.2:
        return bytes(atheris.Mutate(data, max_size))
    body = data[1:]
    start, end, magic = draw.choice(whole)
    batch = body[start:end]
    kind = draw.random()
    if kind < 0.1:
        changed = b""
    elif kind < 0.2:
        changed = batch
        for _ in range(draw.choice([1, 1, 1, 2, 5, 70])):
            batch = renumbered(batch, draw)
            changed += batch
    elif magic == 2 and len(batch) >= _HEADER:
        changed = mutate_batch(batch, max_size, draw)
    else:
        changed = mutate_message(batch, max_size, draw)
    return (b"\0" + seal(body[:start] + changed + body[end:]))[:max_size]


def renumbered(batch: bytes, draw: random.Random) -> bytes:
    """A copy of a batch with later offsets."""
    offset = int.from_bytes(batch[:8], "big", signed=True) + draw.choice([0, 1, 5, 100])
    return struct.pack(">q", max(-(2**63), min(offset, 2**63 - 1))) + batch[8:]


def mutate_batch(batch: bytes, max_size: int, draw: random.Random) -> bytes:
    header, body = batch[:_HEADER], batch[_HEADER:]
    if draw.random() < 0.3:
        header = bytes(atheris.Mutate(header, _HEADER)).ljust(_HEADER, b"\0")
        header = header[:16] + b"\2" + header[17:]
    else:
        body = mutate_inside(header[22] & 7, body, max_size, draw)
    return header[:8] + struct.pack(">i", _HEADER - 12 + len(body)) + header[12:] + body


def mutate_message(message: bytes, max_size: int, draw: random.Random) -> bytes:
    value = 12 + 14 + (8 if message[16] == 1 else 0)
    codec = message[17] & 7 if len(message) > 17 else 0
    if codec == 0 or draw.random() < 0.3 or len(message) < value:
        rest = bytes(atheris.Mutate(message[16:], max_size)) or b"\0"
        return message[:8] + struct.pack(">i", 4 + len(rest)) + message[12:16] + rest
    inside = mutate_inside(codec, message[value:], max_size, draw)
    return message[:8] + struct.pack(">i", value - 12 + len(inside)) + message[12 : value - 4] + struct.pack(
        ">i", len(inside)
    ) + inside  # fmt: skip


def mutate_inside(codec: int, body: bytes, max_size: int, draw: random.Random) -> bytes:
    """Change the uncompressed content, or the compressed bytes."""
    if codec not in _CODECS or draw.random() < 0.3:
        return bytes(atheris.Mutate(body, max_size))
    try:
        plain = bytes(decompress(codec, body))[:_PLAIN_LIMIT]
    except (cramjam.DecompressionError, ValueError):
        return bytes(atheris.Mutate(body, max_size))
    if draw.random() < 0.5:
        plain = bytes(atheris.Mutate(plain, _PLAIN_LIMIT))
    else:
        plain = mutate(b"\0" + plain, _PLAIN_LIMIT, draw.getrandbits(32))[1:]
    return compress(_CODECS[codec], plain)


def decompress(codec: int, body: bytes) -> bytes:
    from zkconsumer.decode.decompress import DecompressError, Scratch
    from zkconsumer.decode.memory import ChunkMemory

    scratch = Scratch(ChunkMemory())
    try:
        scratch.add(codec, memoryview(body), 1 << 20, before_format_2=True)
    except DecompressError as error:
        raise ValueError from error
    return bytes(scratch.data[: scratch.used])


def mutate_login(data: bytes, max_size: int, seed: int) -> bytes:
    """One change: anywhere, or in the bytes of one step of the peer, whose length is corrected."""
    draw = random.Random(seed)
    steps = list(login.steps_of(data[1:]))
    if not steps or draw.random() < 0.1:
        return bytes(atheris.Mutate(data, max_size))
    number = draw.randrange(len(steps))
    kind = draw.random()
    if kind < 0.1:
        del steps[number]
    elif kind < 0.2:
        steps.insert(number, draw.choice(steps))
    elif kind < 0.3:
        steps[number] = login.Step(draw.randrange(4), steps[number].data)
    else:
        steps[number] = steps[number]._replace(data=bytes(atheris.Mutate(steps[number].data, max_size)))
    return login.encode(data[0], steps)[:max_size]


TARGETS = {"records": (records_target.run, mutate), "login": (login.run, mutate_login)}


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--keep"]
    minutes = float(words.pop(0)) if words and words[0] not in TARGETS else 10
    names = words or list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        sys.exit(f"there is no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    if "--keep" in sys.argv:
        for name in names:
            keep(name)
    elif len(names) == 1:
        fuzz(names[0], minutes)
    else:  # a process can have one target
        share = str(minutes / len(names))
        for name in names:
            subprocess.run([sys.executable, "-m", "tests.fuzz.fuzz", share, name], check=True)


def fuzz(name: str, minutes: float) -> None:
    """Run one target; does not return."""
    run, mutator = TARGETS[name]
    if name == "login":
        tracemalloc.start()
    folder = WORK / name
    folder.mkdir(parents=True, exist_ok=True)
    for title, data in [*first_inputs(name), *kept_inputs(name)]:
        (folder / title).write_bytes(data)
    limits = [f"-max_total_time={int(minutes * 60)}", "-timeout=10", "-rss_limit_mb=2048", "-max_len=20000"]
    quiet = ["-print_final_stats=1", f"-artifact_prefix={WORK}/", "-verbosity=1"]
    atheris.Setup([sys.argv[0], *limits, *quiet, str(folder)], run, custom_mutator=mutator)
    atheris.Fuzz()


def keep(name: str) -> None:
    """Write the new inputs that the last run of a target found, the smallest first."""
    first = {title for title, _ in first_inputs(name)}
    found = [path for path in (WORK / name).glob("*") if path.name not in first]
    with zipfile.ZipFile(archive_of(name), "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(found, key=lambda path: path.stat().st_size):
            archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes())
            if sum(entry.compress_size + _PER_ENTRY for entry in archive.infolist()) > _KEPT_BYTES:
                break


if __name__ == "__main__":
    main()
