"""The public face: connector, streams, key and value decoders, metrics."""
