"""One member of a consumer group: joins it, rebalances, owns partitions, and commits their offsets."""
