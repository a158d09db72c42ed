"""``group.protocol=zookeeper``: each member computes and claims its share."""
