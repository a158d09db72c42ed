"""RangeReader: what batch reads and streams have in common, the reading of a task on an executor; and brief errors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from zkconsumer.errors import ConfigError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from zkconsumer.spark.rules.microbatch import RangePartition
    from zkconsumer.spark.rules.options import SourceOptions

_P = ParamSpec("_P")
_R = TypeVar("_R")


def brief(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Raise errors that the user's options cause without the way through this package.

    Spark prints the whole traceback up to three times, and the sentence that helps is at its end.
    """

    @functools.wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(*args, **kwargs)
        except (ConfigError, UsageError) as error:
            raise error.with_traceback(None) from None

    return call


class RangeReader:
    """The executor side of both readers."""

    _options: SourceOptions
    _columns: tuple[str, ...]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Fetch the ranges of one task; runs on an executor."""
        from zkconsumer.spark.javastores import with_pem_files
        from zkconsumer.spark.taskreading import read_ranges

        task: RangePartition | None = partition.value
        if task is None:  # there is nothing to read
            return iter(())
        return read_ranges(with_pem_files(self._options), task, self._columns)
