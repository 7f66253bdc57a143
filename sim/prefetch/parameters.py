"""Where a prefetcher's numbers stand in the two arrays that compiled loops get."""

AHEAD, TOP, SEED, EACH = 0, 1, 2, 3  # whole numbers
LEAST_SCORE, RECALL, PRECISION = 0, 1, 2  # real ones
