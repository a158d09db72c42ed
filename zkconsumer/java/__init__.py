"""What classes of Java compute, in Python: hashes and order of strings, regexes, the default partitioner."""
