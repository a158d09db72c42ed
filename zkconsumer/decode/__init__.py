"""From bytes to records: the record batches and message sets of a fetch response become Arrow batches and messages.

It uses no socket, thread or clock; ``fetch/`` and ``spark/`` supply the bytes. ``batchdecoder`` is the entry point; its
steps are in the other modules: ``kernels`` finds the records, ``verify`` checks checksums, ``transactions`` skips
aborted transactions, ``unpack`` decompresses, ``assemble`` builds the columns.
"""
