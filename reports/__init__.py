"""Floor 5: figures and the offline HTML page."""
