"""The main job end to end on real servers and real data, verified: ``zkconsumer demo``."""
