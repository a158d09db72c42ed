"""Known offsets of known partitions, read without a group: by a Spark task, and by ``zkconsumer.read``.

Importing this package loads neither pyarrow nor pyspark.
"""
