"""Co-design workbench for mixture-of-experts inference."""
