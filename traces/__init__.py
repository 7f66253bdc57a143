"""Floor 1: what is replayed. Formats, readers, capture, synthesis, statistics. Knows nothing of simulation."""
