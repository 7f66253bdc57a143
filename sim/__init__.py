"""Floor 2: what is simulated. Models, hardware, cache policies, prefetchers, engines, costs. No torch."""
