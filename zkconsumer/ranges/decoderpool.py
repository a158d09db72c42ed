"""DecoderPool: decoders between two uses, which keep their memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zkconsumer.decode.batchdecoder import BatchDecoder
from zkconsumer.decode.decodersettings import DecoderSettings


class DecoderPool:
    """Keeps decoders for their memory, since the first access to new memory costs more than filling it.

    One thread borrows and returns; another one may use what is borrowed.
    """

    def __init__(self) -> None:
        self._spare: dict[DecoderSettings, list[BatchDecoder]] = {}

    @contextmanager
    def borrowed(self, settings: DecoderSettings, columns: tuple[str, ...]) -> Iterator[BatchDecoder]:
        """A decoder for exclusive use, whose batches have these columns."""
        spare = self._spare.setdefault(settings, [])
        decoder = spare.pop() if spare else BatchDecoder(settings)
        decoder.choose_columns(columns)
        try:
            yield decoder
        finally:
            spare.append(decoder)
