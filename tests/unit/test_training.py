"""Training small decoders: the model is the one its spec counts, it computes what it should, and it learns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from codesign.errors import UsageError
from codesign.kernels.training.corpus import Corpus, is_held_out, stdlib_corpus, unigram_entropy
from codesign.kernels.training.grouped import grouped_product
from codesign.kernels.training.model import Decoder, router_losses
from codesign.kernels.training.recipe import Recipe, TrainedModel, check_trainable
from codesign.kernels.training.train import DivergedError, batch_of, rate_at, train_model
from codesign.sim.ffn import DenseFfn, MoeFfn
from codesign.sim.mixers import Attention, Mamba2
from codesign.sim.model import Layer, ModelSpec
from tiny_training import RECIPE, TOKENS, VOCAB, tiny_corpus, tiny_designs
from torch.nn.functional import silu

CORPUS = tiny_corpus()
STANDARD = tiny_designs()["standard"]
LATENT = tiny_designs()["latent-2"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Losses are equal to the last bit only where sums are made in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def decoder_of(moe: MoeFfn | DenseFfn, attention: Attention | None = None, **more: object) -> ModelSpec:
    layer = Layer(attention or Attention(16, 4, 2, 4, 4), moe, 32)
    return replace(STANDARD, name="variant", layers=(layer, layer), **more)  # type: ignore[arg-type]


VARIANTS = {
    "standard": STANDARD,
    "latent": LATENT,
    "latent with a norm, squared ReLU": decoder_of(
        MoeFfn(16, 6, 3, 10, latent=4, latent_norm=True, gated=False)
    ),
    "shared expert with a gate": decoder_of(
        MoeFfn(16, 6, 2, 10, latent=8, shared_intermediate=12, shared_gate=True)
    ),
    "dense, tied": decoder_of(DenseFfn(16, 24), tied_embeddings=True),
    "norms over heads, values of another width": decoder_of(
        MoeFfn(16, 4, 1, 8), Attention(16, 4, 2, 4, 6, qk_norm="head")
    ),
    "norms over projections, a window": decoder_of(
        MoeFfn(16, 4, 1, 8), Attention(16, 4, 2, 4, 4, 5, qk_norm="whole")
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_model_has_the_parameters_that_its_spec_counts_and_each_gets_a_gradient(name: str) -> None:
    spec = VARIANTS[name]
    decoder = Decoder(spec, 0)
    assert decoder.parameters == spec.total_params
    logits, _ = decoder.forward(torch.arange(32).reshape(2, 16) % VOCAB)
    logits.logsumexp(-1).sum().backward()
    assert all(weight.grad is not None for weight in decoder.weights.values())


@pytest.mark.parametrize("name", VARIANTS)
def test_no_token_sees_a_later_one(name: str) -> None:
    decoder = Decoder(VARIANTS[name], 0)
    tokens = torch.arange(12)[None] % VOCAB
    changed = tokens.clone()
    changed[0, 7:] = 3
    (before, _), (after, _) = decoder.forward(tokens), decoder.forward(changed)
    torch.testing.assert_close(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])


def mixture_token_by_token(decoder: Decoder, moe: MoeFfn, x_SD: torch.Tensor) -> torch.Tensor:
    """What layer 0's mixture means: slow and obvious."""
    w = {name.removeprefix("0."): weight.double() for name, weight in decoder.weights.items()}
    rows = []
    for x in x_SD.double():
        logits = w["router"] @ x
        chosen = logits.argsort(descending=True)[: moe.top_k]
        shares = logits[chosen].softmax(0) * math.sqrt(moe.top_k)
        narrow = x if moe.latent is None else w["down"] @ x
        total = torch.zeros_like(narrow)
        for expert, share in zip(chosen, shares, strict=True):
            inner = w["experts_in"][expert] @ narrow
            m = moe.intermediate
            act = silu(inner[:m]) * inner[m:] if moe.gated else inner.relu() ** 2
            total = total + share * (w["experts_out"][expert] @ act)
        if moe.latent_norm:
            total = total / (total.square().mean() + 1e-6).sqrt() * w["norm_latent"]
        y = total if moe.latent is None else w["up"] @ total
        if moe.shared_intermediate:
            inner, m = w["shared_in"] @ x, moe.shared_intermediate
            shared = w["shared_out"] @ (silu(inner[:m]) * inner[m:])
            y = y + shared * ((w["shared_gate"] @ x).sigmoid() if moe.shared_gate else 1.0)
        rows.append(y)
    return torch.stack(rows)


@pytest.mark.parametrize(
    "name", ["standard", "latent", "latent with a norm, squared ReLU", "shared expert with a gate"]
)
def test_a_mixture_is_what_a_loop_over_its_tokens_says(name: str) -> None:
    spec = VARIANTS[name]
    decoder = Decoder(spec, 3)
    x_SD = torch.randn(29, 16, generator=torch.Generator().manual_seed(0))
    found, _ = decoder._mixture("0.", spec.moe, x_SD)
    expected = mixture_token_by_token(decoder, spec.moe, x_SD)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)  # single precision


def test_the_gradients_of_grouped_products_are_those_of_separate_ones() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(7, 3, dtype=torch.float64, generator=draw).requires_grad_()
    w = torch.randn(4, 5, 3, dtype=torch.float64, generator=draw).requires_grad_()
    ends = [2, 2, 6, 7]  # the second group is empty
    parts = [x[a:b] @ w[n].T for n, (a, b) in enumerate(zip([0, *ends], ends, strict=False))]
    torch.testing.assert_close(grouped_product(x, w, ends), torch.cat(parts))
    assert torch.autograd.gradcheck(lambda a, b: grouped_product(a, b, ends), (x, w))


def test_the_balance_loss_is_one_where_loads_are_even_and_the_number_of_experts_where_one_takes_all() -> None:
    even = torch.eye(4).repeat(8, 1) * 1e-3
    balance, _ = router_losses([even], 1)
    assert balance.item() == pytest.approx(1.0, abs=1e-3)
    balance, square = router_losses([torch.tensor([[50.0, 0, 0, 0]]).repeat(8, 1)], 1)
    assert balance.item() == pytest.approx(4.0, abs=1e-3)
    assert square.item() == pytest.approx(2500.0, rel=1e-3)


@pytest.mark.parametrize("spec", [STANDARD, LATENT], ids=lambda spec: spec.name)
def test_it_learns_what_follows_what(spec: ModelSpec) -> None:
    found = train_model(spec, 3 * TOKENS, 0, corpus=CORPUS, recipe=RECIPE)
    assert found is not None
    assert found.held_out_loss < unigram_entropy(CORPUS.held_out_N) / 2
    assert found.held_out_loss > 0.9 * math.log(2)  # nothing can do better, but for chance in 1,024 tokens
    assert found.curve[-1][0] == found.tokens == 3 * TOKENS
    assert found.balance is not None
    assert found.held_out_error is not None
    assert found.held_out_error < 0.1


def losses(found: TrainedModel | None) -> tuple[object, ...]:
    assert found is not None
    return (found.held_out_loss, found.curve, found.balance)


def test_the_seed_decides_the_loss_to_the_last_bit() -> None:
    first, again, other = (
        losses(train_model(LATENT, TOKENS, seed, corpus=CORPUS, recipe=RECIPE)) for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


def test_a_run_stopped_half_way_ends_as_one_that_was_not(tmp_path: Path) -> None:
    state = tmp_path / "state.pt"
    stopped = train_model(
        LATENT,
        TOKENS,
        0,
        corpus=CORPUS,
        recipe=RECIPE,
        checkpoint=state,
        go_on=lambda tokens: tokens < TOKENS // 2,
    )
    assert stopped is None
    seen: list[int] = []
    resumed = train_model(
        LATENT,
        TOKENS,
        0,
        corpus=CORPUS,
        recipe=RECIPE,
        checkpoint=state,
        go_on=lambda t: seen.append(t) is None,
    )
    assert seen[0] == TOKENS // 2 + RECIPE.tokens_per_step
    assert losses(resumed) == losses(train_model(LATENT, TOKENS, 0, corpus=CORPUS, recipe=RECIPE))


def test_a_torn_checkpoint_costs_its_work_and_nothing_else(tmp_path: Path) -> None:
    state = tmp_path / "state.pt"
    train_model(LATENT, TOKENS, 0, corpus=CORPUS, recipe=RECIPE, checkpoint=state, go_on=lambda _: False)
    state.write_bytes(state.read_bytes()[:-200])
    found = train_model(LATENT, TOKENS, 0, corpus=CORPUS, recipe=RECIPE, checkpoint=state)
    assert losses(found) == losses(train_model(LATENT, TOKENS, 0, corpus=CORPUS, recipe=RECIPE))


def test_a_loss_that_is_no_number_ends_the_run_with_design_seed_and_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("codesign.kernels.training.train.rate_at", lambda *_: math.nan)
    with pytest.raises(DivergedError, match="standard, seed 7: the loss is no number at step 1"):
        train_model(STANDARD, TOKENS, 7, corpus=CORPUS, recipe=RECIPE)


def test_all_windows_come_before_one_comes_again_and_every_design_sees_the_same() -> None:
    recipe = Recipe(context=100, batch=7)
    stream = (np.arange(10_000) % 251).astype(np.uint8)
    per_round = (10_000 - 1) // 100 - 1
    firsts: list[bytes] = []
    for step in range(per_round // 7):
        firsts += [row.numpy().tobytes() for row in batch_of(stream, recipe, 0, step)]
    assert len(set(firsts)) == len(firsts)
    assert torch.equal(batch_of(stream, recipe, 0, 5), batch_of(stream, recipe, 0, 5))
    assert not torch.equal(batch_of(stream, recipe, 0, 5), batch_of(stream, recipe, 1, 5))
    again = batch_of(stream, recipe, 0, per_round)  # a later round: another start, still whole windows
    assert again.shape == (7, 101)
    assert bool(((again[:, 1:] - again[:, :-1]) % 251 == 1).all())


def test_the_rate_rises_and_falls_to_a_twentieth() -> None:
    recipe = Recipe(learning_rate=1e-2, warm_up=0.1)
    rates = [rate_at(step, 200, recipe) for step in range(200)]
    assert max(rates) == pytest.approx(1e-2)
    assert rates[:20] == sorted(rates[:20])
    assert rates[20:] == sorted(rates[20:], reverse=True)
    assert rates[-1] == pytest.approx(5e-4, rel=0.05)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (replace(STANDARD, vocab=17), "vocabulary is 17, the text has 16"),
        (replace(STANDARD, head_bias=True), "bias of the output head"),
        (replace(STANDARD, layers=(Layer(Mamba2(16, 2, 16, 1, 8, 4), STANDARD.moe, 32),)), "layer 0: has Mamba2; only"),
        (replace(STANDARD, layers=(Layer(None, STANDARD.moe, 16),)), "has no mixer"),
        (replace(STANDARD, layers=(Layer(Attention(16, 2, 2, 8, 8), None, 16),)), "has no feed-forward"),
        (decoder_of(STANDARD.moe, Attention(16, 4, 2, 4, 4, sinks=True)), "attention with sinks"),
        (decoder_of(STANDARD.moe, Attention(16, 4, 2, 5, 4)), "head_dim must be even"),
        (decoder_of(replace(STANDARD.moe, router_bias=True)), "mixture with biases"),
        (decoder_of(DenseFfn(16, 8, bias=True)), "feed-forward with biases"),
        (replace(STANDARD, layers=(replace(STANDARD.layers[0], norm_weights=64),)), "two norms of width 16"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused_with_layer_and_part(spec: ModelSpec, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_trainable(spec, VOCAB)


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"batch": 0}, "batch must be at least 1"), ({"learning_rate": 0.0}, "learning_rate"), ({"warm_up": 1.0}, "warm_up")],
)  # fmt: skip
def test_recipes_that_make_no_sense_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Recipe(**fields)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="tokens must be at least 1"):
        Recipe().steps(0)


def test_the_standard_library_is_split_by_file_the_same_way_every_time() -> None:
    corpus, again = stdlib_corpus(), stdlib_corpus()
    assert corpus.sha256 == again.sha256
    assert corpus.train_N.size > 10 * corpus.held_out_N.size > 10**6
    assert not corpus.train_N.flags.writeable
    names = [f"module_{n}.py" for n in range(2000)]
    assert 50 < sum(map(is_held_out, names)) < 150
    facts = corpus.facts()
    assert 2.5 < float(str(facts["unigram_entropy"])) < 4.0


def test_text_that_is_too_short_or_has_unknown_tokens_is_refused() -> None:
    good = np.zeros(10, np.uint8)
    with pytest.raises(UsageError, match="held-out part needs 2 tokens"):
        Corpus("short", good, good[:1], 4)
    with pytest.raises(UsageError, match="training part needs 2 tokens or more, all below 4"):
        Corpus("wide", good + 4, good, 4)
