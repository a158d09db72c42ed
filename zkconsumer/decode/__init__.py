"""From bytes to records: the record batches and message sets of a fetch response become Arrow batches and messages.

Needs no socket, no thread and no clock; ``fetch/`` and ``spark/`` supply the bytes. ``batchdecoder`` is the entry
point, and its steps are the other modules: ``kernel`` and ``messageset`` find the records, ``verify`` checks
checksums, ``transactions`` skips aborted ones, ``unpack`` decompresses, ``assemble`` builds the columns.
"""
