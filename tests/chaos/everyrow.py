"""All rows of docs/reliability.md, in the order of its table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.chaos.manymembers import MANY
from tests.chaos.rows import ROWS, Row
from tests.chaos.sparkrow import SPARK

EVERY_ROW: Final[Mapping[str, Row]] = {**ROWS, MANY.name: MANY, SPARK.name: SPARK}
