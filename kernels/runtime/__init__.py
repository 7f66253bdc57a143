"""The runtime: a mixture-of-experts decoder that really runs, its experts in a slow tier behind a bounded slot cache.

What is evicted, fetched ahead and where it goes is decided by the simulator's own compiled code (`decisions.py`), so that a
run here and a simulated one differ in their times only. `docs/validation.md` says what is compared and how.
"""
