"""The trace in the repository is what its card says."""

from __future__ import annotations

import json

import codesign
import pytest

CARD = codesign.bundled_trace_path().with_suffix(".md")


def test_the_data_folder_stays_below_three_megabytes() -> None:
    assert sum(path.stat().st_size for path in CARD.parent.iterdir()) <= 3_000_000


def test_the_trace_is_logged_whole_and_holds_prefill_decode_and_guesses() -> None:
    trace = codesign.read_trace(codesign.bundled_trace_path())
    trace.check_ids()
    assert not trace.synthetic
    assert (trace.num_layers, trace.num_experts, trace.top_k) == (8, 32, 4)
    assert trace.is_prefill_T is not None
    assert 0 < trace.is_prefill_T.sum() < trace.num_tokens
    assert trace.predicted_TLHM is not None
    assert trace.predicted_TLHM.shape[2:] == (3, 8)


@pytest.mark.parametrize("name", ["small-olmoe-stdlib", "small-olmoe-stdlib-untrained"])
def test_reuse_and_recall_of_the_card_are_those_of_the_file(name: str) -> None:
    info = codesign.trace_info(codesign.read_trace(codesign.bundled_trace_path(name)))
    column = 2 if name.endswith("untrained") else 1
    printed = {
        cells[0].strip(): float(cells[column])
        for line in CARD.read_text(encoding="utf-8").splitlines()
        if line.startswith(("| reuse of the token before", "| gate-guess recall"))
        and (cells := [cell.strip() for cell in line.strip("|").split("|")])
    }
    assert printed["reuse of the token before"] == round(info.reuse or 0.0, 3)
    for guess in info.guesses:
        assert printed[f"gate-guess recall, {guess.ahead} ahead, first 4"] == round(guess.recall_first_k, 3)


def test_the_model_learnt_at_least_half_a_nat_a_token_beyond_unigrams() -> None:
    facts = json.loads(CARD.with_suffix(".training.json").read_text(encoding="utf-8"))
    gain = facts["held_out_unigram_entropy_nats_per_token"] - facts["held_out_loss_nats_per_token"]
    assert gain >= 0.5
    assert f"{facts['held_out_loss_nats_per_token']:.3f}" in CARD.read_text(encoding="utf-8")
