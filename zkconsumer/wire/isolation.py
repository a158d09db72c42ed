"""How Fetch and ListOffsets requests treat transactional records (KIP-98): ``isolation.level`` and its codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

READ_UNCOMMITTED: Final = "read_uncommitted"
READ_COMMITTED: Final = "read_committed"

ISOLATION_LEVELS: Final[Mapping[str, int]] = {READ_UNCOMMITTED: 0, READ_COMMITTED: 1}
"""Code in requests for each value of the property."""
