"""Benchmarks against other clients, each in one run, as medians and ratios; ``zkconsumer bench`` runs them."""
