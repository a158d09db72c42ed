"""Benchmarks beside the peers, each in one run, printed as medians and ratios; ``zkconsumer bench`` runs them."""
