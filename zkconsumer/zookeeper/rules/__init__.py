"""The paths and bytes of znodes."""
