"""The demo: zkconsumer's main tasks on real servers and real data, verified; ``python -m demo`` runs it."""
