"""Synthetic traces have the statistics asked for; permuted ones keep everything but time."""

from __future__ import annotations

import numpy as np
import pytest
from codesign.errors import UsageError
from codesign.traces import permute_steps, synthesise, trace_info


def drawn(**asked: object):  # type: ignore[no-untyped-def]
    shape = {"num_tokens": 3000, "num_layers": 4, "num_experts": 32, "top_k": 4, "rng": np.random.default_rng(1)}
    return synthesise(**(shape | asked))  # type: ignore[arg-type]


@pytest.mark.parametrize("reuse", [0.2, 0.5, 0.9])
def test_reuse_is_what_was_asked(reuse: float) -> None:
    assert trace_info(drawn(reuse=reuse)).reuse == pytest.approx(reuse, abs=0.03)


def test_without_a_wish_reuse_is_chance() -> None:
    assert trace_info(drawn()).reuse == pytest.approx(4 / 32, abs=0.01)


@pytest.mark.parametrize("recall", [0.3, 0.8])
def test_guess_recall_is_what_was_asked(recall: float) -> None:
    (guess,) = trace_info(drawn(guess_recall=recall)).guesses
    assert guess.recall_first_k == pytest.approx(recall, abs=0.03)


def test_more_skew_and_more_cross_layer_are_measured_as_more() -> None:
    skews = [trace_info(drawn(skew=skew)).load_max_over_mean for skew in (0.0, 0.5, 1.0)]
    assert skews == sorted(skews)
    assert skews[2] > 1.5 * skews[0]
    crossed = [trace_info(drawn(cross_layer=value)).cross_layer or 0.0 for value in (0.0, 0.4, 0.8)]
    assert crossed == pytest.approx([0.0, 0.4, 0.8], abs=0.06)


def test_it_is_marked_synthetic_and_what_cannot_be_is_refused() -> None:
    assert drawn().synthetic
    with pytest.raises(UsageError, match="reuse"):
        drawn(reuse=0.01)


def test_permuting_steps_keeps_loads_and_removes_the_order() -> None:
    trace = drawn(reuse=0.6)
    mixed = permute_steps(trace, np.random.default_rng(0))
    for layer in range(trace.num_layers):
        loads = [np.bincount(t.experts_TLK[:, layer].ravel(), minlength=32) for t in (trace, mixed)]
        np.testing.assert_array_equal(*loads)
    assert (trace_info(mixed).reuse or 0.0) < (trace_info(trace).reuse or 0.0) - 0.2
