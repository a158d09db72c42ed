"""``zkconsumer warm``: compile the decoder ahead of time."""

from __future__ import annotations

import time

import click

from zkconsumer.errors import UsageError


@click.command(name="warm")
def warm() -> None:
    """Compile the decoder and print where the result is kept.

    For container images: run it while the image is built, as the user or with the NUMBA_CACHE_DIR that the container
    will have, and on the kind of processor that it will run on. Containers then start without compiling, also where
    that directory cannot be written.
    """
    from zkconsumer.decode.batchdecoder import warm as load

    began = time.monotonic()
    directory = load(everything=True)
    if directory is None:
        raise UsageError("the compiled decoder cannot be kept anywhere; set NUMBA_CACHE_DIR to a writable directory")
    click.echo(f"The decoder was ready in {time.monotonic() - began:.1f} s and is kept in {directory}")
