"""Benchmarks against other clients, each in one run, as medians and ratios; ``python -m benchmarks`` runs them."""
