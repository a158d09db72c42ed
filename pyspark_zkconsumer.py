"""Found by Spark by its name: the first look-up of a Python data source imports every top-level ``pyspark_*`` module.

It is imported in every Spark session, also in those that do not use this source, so it imports next to nothing.
"""

from zkconsumer.spark.lookup import find_source

DefaultSource = find_source()

__all__ = ["DefaultSource"]
