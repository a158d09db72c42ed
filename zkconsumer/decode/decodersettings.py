"""DecoderSettings: what a user sets about decoding, as every decoder of a consumer has it.

It imports no kernels, so who hands the settings on does not load them.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from zkconsumer.config.consumerconfig import ConsumerConfig


class DecoderSettings(NamedTuple):
    """The properties of a decoder.

    Attributes:
        check_crcs: whether to verify the checksum of every batch and message.
        max_decompressed_bytes: limit of the decompressed bytes of a chunk. A chunk with more is cut between two
            batches; a single batch with more is refused.
    """

    check_crcs: bool = ConsumerConfig.check_crcs
    max_decompressed_bytes: int = ConsumerConfig.decompressed_max_bytes

    @classmethod
    def from_config(cls, config: ConsumerConfig) -> Self:
        """Those of the consumer's properties."""
        return cls(config.check_crcs, config.decompressed_max_bytes)


DEFAULT_SETTINGS: Final = DecoderSettings()
