"""Two engines with one meaning: SimPy processes (the reference) and compiled loops (the fast one)."""
