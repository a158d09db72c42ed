"""Export, import, reset, copy and restore of offsets: one engine that writes."""
