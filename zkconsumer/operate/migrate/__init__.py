"""Migration of offsets between ZooKeeper and Kafka, and back."""
