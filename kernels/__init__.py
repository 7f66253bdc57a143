"""Floor 3: what really runs on the machine at hand."""
