"""ZooKeeper adapters; the only package that imports kazoo."""
