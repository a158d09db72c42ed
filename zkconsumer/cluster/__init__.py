"""The brokers, topics and partitions of a cluster, as znodes or brokers describe them."""
