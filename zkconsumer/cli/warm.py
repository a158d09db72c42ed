"""``zkconsumer warm``: compile the decoder ahead of time."""

from __future__ import annotations

import time

import click

from zkconsumer.errors import UsageError


@click.command(name="warm")
def warm() -> None:
    """Compile the decoder and print where the result is kept.

    For container images: run it while the image is built, as the user or with the NUMBA_CACHE_DIR of the later
    container, and on the same kind of processor. Containers then start without compiling, also if they cannot write to
    that directory.
    """
    from zkconsumer.decode.batchdecoder import warm as load

    began = time.monotonic()
    directory = load(everything=True)
    if directory is None:
        raise UsageError("no directory for the compiled decoder is writable; set NUMBA_CACHE_DIR to one that is")
    click.echo(f"The decoder was ready in {time.monotonic() - began:.1f} s and is kept in {directory}")
