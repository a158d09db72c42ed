"""The demo: the package's main tasks on real servers and real data, verified; ``zkconsumer demo`` runs it."""
