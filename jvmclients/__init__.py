"""Kafka's own consumers in a JVM that Python drives through py4j, for the tests and the benchmarks."""
