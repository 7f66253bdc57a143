"""Totals, active parameters and KV bytes of the catalog against published figures; each figure's source is in its file."""

from __future__ import annotations

import pytest
from codesign.sim.catalog import load_model, model_document, model_names

FIGURES = [
    (name, figure, published)
    for name in model_names()
    for figure, published in model_document(name)["published"].items()
]
ALIKE = {"total_params", "active_params", "kv_bytes_per_token"}


@pytest.mark.parametrize(("name", "figure", "published"), FIGURES, ids=[f"{n}-{f}" for n, f, _ in FIGURES])
def test_a_derived_figure_is_the_published_one_to_its_last_digit(name, figure, published):
    """`step` is one unit of the last digit that the source prints; 0 where it prints all of them."""
    model = load_model(name)
    derived = {
        "total_params": model.total_params,
        "active_params": model.active_params,
        "kv_bytes_per_token": model.kv_bytes_per_token(),
    }[figure]
    if published.get("counts") == "without the input embedding":
        derived -= model.vocab * model.hidden
    assert abs(derived - published["value"]) <= published["step"], published["source"]


def test_every_published_figure_has_a_source_and_enough_digits_to_be_a_check():
    """The coarsest is a model's name, "A3B": one digit."""
    assert len(FIGURES) >= 40
    for name, figure, published in FIGURES:
        assert figure in ALIKE
        assert len(published["source"]) > 8, (name, figure)
        assert 0 <= 3 * published["step"] <= published["value"], (name, figure)


def test_the_catalog_holds_at_least_fourteen_models_of_every_kind_that_was_asked_for():
    assert len(model_names()) >= 14
    wanted = {
        "olmoe-1b-7b", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v2-lite", "deepseek-v3", "gpt-oss-20b",
        "gpt-oss-120b", "nemotron-3-super", "kimi-k3", "llama-3.1-8b", "small-olmoe-stdlib",
    }  # fmt: skip
    assert wanted <= set(model_names())
    for name in ("nemotron-3-super", "kimi-k3"):
        model = load_model(name)
        assert model.moe.latent is not None
        assert model.moe.expert_width < model.hidden
    assert not load_model("llama-3.1-8b").is_moe


@pytest.mark.parametrize(
    ("name", "experts", "top_k", "moe_layers", "latent"),
    [
        ("nemotron-3-super", 512, 22, 40, 1024),
        ("kimi-k3", 896, 16, 92, 3584),
        ("deepseek-v3", 256, 8, 58, None),
        ("qwen3-30b-a3b", 128, 8, 48, None),
        ("gpt-oss-120b", 128, 4, 36, None),
    ],
)
def test_the_mixture_has_the_published_shape(name, experts, top_k, moe_layers, latent):
    model = load_model(name)
    assert (model.num_experts, model.top_k, len(model.moe_layer_ids), model.moe.latent) == (
        experts, top_k, moe_layers, latent,
    )  # fmt: skip


def test_gpt_oss_parts_agree_with_the_model_cards_table():
    """gpt-oss model card, table 1, in billions: MLP 114.71 and 19.12, attention 0.96 and 0.64, embeddings 1.16."""
    for name, mlp, attention in (("gpt-oss-120b", 114.71, 0.96), ("gpt-oss-20b", 19.12, 0.64)):
        model = load_model(name)
        routers = sum(layer.ffn.router_weights for layer in model.layers)
        mixers = sum(layer.resident_weights for layer in model.layers) - routers
        assert (model.routed_params + routers) / 1e9 == pytest.approx(mlp, abs=0.006)
        assert mixers / 1e9 == pytest.approx(attention, abs=0.006)
        assert model.embedding_params / 1e9 == pytest.approx(1.16, abs=0.006)


def test_a_catalog_file_says_where_each_config_was_read():
    for name in model_names():
        document = model_document(name)
        assert document["name"] == name
        assert document["config_read_from"]
        assert document["published"] or document["notes"], name
