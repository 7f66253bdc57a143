"""Floor 4: the studies, one verb a file."""
