"""What the installed cramjam has to be like."""

import cramjam
import pytest

from zkconsumer.decode.decompress import require_known_errors
from zkconsumer.errors import DecoderUnavailable


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
@pytest.mark.parametrize("text", ["output buffer too small", None])
def test_a_cramjam_that_words_its_errors_differently_is_refused(codec, text, monkeypatch):
    """Another text for a small output, or the known one also for damaged bytes."""
    stream = getattr(cramjam, codec)

    class Reworded:
        @staticmethod
        def compress(data):
            return stream.compress(data)

        @staticmethod
        def decompress_into(data, output):
            try:
                return stream.decompress_into(data, output)
            except cramjam.DecompressionError as error:
                raise cramjam.DecompressionError(text or "failed to write whole buffer") from error

    monkeypatch.setattr(cramjam, codec, Reworded)
    with pytest.raises(DecoderUnavailable, match=f"cramjam .*{codec}"):
        require_known_errors()
