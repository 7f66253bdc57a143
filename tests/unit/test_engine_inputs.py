"""An engine refuses blocks that do not hold what its prefetcher reads, before compiled code reads past them."""

from __future__ import annotations

import numpy as np
import pytest
from codesign.sim.cache.registry import policy
from codesign.sim.engines.run import Engine, Setup
from codesign.sim.prefetch.registry import prefetcher
from small_scenarios import drawn_trace, source_of


@pytest.mark.parametrize("name", ["gate", "previous"])
def test_a_prefetcher_is_not_run_on_blocks_without_what_it_reads(name: str) -> None:
    trace = drawn_trace(np.random.default_rng(0))
    setup = Setup(policy("lru"), np.array([trace.top_k]), prefetch=prefetcher(name))
    with pytest.raises(RuntimeError, match=r"needs (predicted|previous), and the blocks were made without"):
        Engine(source_of(trace), setup)
