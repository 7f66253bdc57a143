"""Designs as columns are the models they stand for; transformations keep what they promise; costs follow the formulas."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from codesign.errors import UsageError
from codesign.sim.active_flops import active_flops
from codesign.sim.catalog import load_hardware, load_model
from codesign.sim.designs import (
    TRANSFORMS,
    Designs,
    Layout,
    Limits,
    OperatingPoint,
    checked,
    design_costs,
    resized,
    standard_counterpart,
)
from codesign.sim.designs.columns import SHAPE
from codesign.sim.designs.costs import OF_MIXTURE, PARTS
from codesign.sim.designs.front import front, knee
from codesign.sim.designs.transform import fine_grained
from codesign.sim.ffn import MoeFfn
from codesign.sim.roofline import RooflinePrices

BASES = ("nemotron-3-super", "deepseek-v3", "gpt-oss-20b", "qwen3-30b-a3b", "mixtral-8x7b", "kimi-k3", "qwen1.5-moe-a2.7b")


def shape(**columns: int) -> dict[str, np.ndarray]:
    whole = {"experts": 128, "top_k": 6, "width": 2688, "latent": 0, "shared": 0, "hidden": 4096} | columns
    return {name: np.array([value]) for name, value in whole.items()}


def derived(transform: str, alpha: float, **columns: int) -> tuple[dict[str, int], bool]:
    made, whole = TRANSFORMS[transform](shape(**columns), np.array([alpha]))
    return {name: int(values[0]) for name, values in made.items()}, bool(whole[0])


def designs_of(base: str, *shapes: dict[str, int]) -> Designs:
    model = load_model(base)
    columns = {name: np.array([one[name] for one in shapes], np.int64) for name in SHAPE}
    return Designs((model,), np.zeros(len(shapes), np.int64), **columns)


@pytest.mark.parametrize("base", BASES)
def test_columns_count_parameters_as_the_model_they_stand_for(base: str) -> None:
    model = load_model(base)
    moe = model.moe
    own = {"experts": moe.num_experts, "top_k": moe.top_k, "width": moe.intermediate, "latent": moe.latent or 0,
           "shared": moe.shared_intermediate}  # fmt: skip
    other = own | {"experts": 24, "top_k": 3, "width": 384, "latent": 256, "shared": 128}
    standard = own | {"experts": 40, "top_k": 5, "latent": 0, "shared": 0}
    designs = designs_of(base, own, other, standard)
    assert designs.total_params[0] == model.total_params
    for row in range(3):
        spec = designs.spec(row)
        assert designs.total_params[row] == spec.total_params
        assert designs.active_params[row] == spec.active_params
        assert designs.active_flops_per_token[row] == active_flops(spec).weights


def test_a_latent_efficiency_design_keeps_its_expert_parameters_and_cuts_its_routed_flops_by_alpha() -> None:
    for alpha in (2, 4, 8):
        made, whole = derived("latent-efficiency", alpha)
        assert whole
        assert made["experts"] * made["latent"] == 128 * 4096
        assert made["top_k"] * made["latent"] * alpha == 6 * 4096


def test_a_latent_accuracy_design_keeps_its_routed_flops_too() -> None:
    for alpha in (2, 4, 8):
        made, _ = derived("latent-accuracy", alpha)
        assert made["top_k"] * made["latent"] == 6 * 4096
        assert made["experts"] == 128 * alpha


def test_a_transformation_that_gives_no_whole_number_is_marked_and_never_rounded() -> None:
    assert not derived("latent-efficiency", 3)[1]
    assert not derived("latent-accuracy", 2.5, top_k=1)[1]
    assert not fine_grained(shape(width=100), np.array([3]))[1][0]


def test_a_fine_grained_split_keeps_parameters_and_flops() -> None:
    made, whole = fine_grained(shape(), np.array([4]))
    assert whole[0]
    assert made["experts"][0] * made["width"][0] == 128 * 2688
    assert made["top_k"][0] * made["width"][0] == 6 * 2688


def test_the_standard_counterpart_has_the_total_and_active_parameters_of_the_latent_model() -> None:
    for name in ("nemotron-3-super", "kimi-k3"):
        model = load_model(name)
        standard = standard_counterpart(model)
        assert standard.moe.latent is None
        assert standard.total_params == pytest.approx(model.total_params, rel=0.01)
        assert standard.active_params == pytest.approx(model.active_params, rel=0.01)
    with pytest.raises(UsageError, match="no latent mixture"):
        standard_counterpart(load_model("mixtral-8x7b"))


def test_a_wider_model_has_more_heads_of_the_same_size_and_a_deeper_one_the_same_kinds_of_layers() -> None:
    base = load_model("nemotron-3-super")
    wide = resized(base, hidden=8192)
    assert wide.layers[0].mixer.heads == 2 * base.layers[0].mixer.heads  # type: ignore[union-attr]
    deep = resized(base, layers=176)
    assert dict(deep.kinds()) == {kind: 2 * count for kind, count in base.kinds()}
    assert resized(base) is base
    with pytest.raises(UsageError, match="heads"):
        resized(base, hidden=4096 + 64)


def test_mixers_can_be_all_attention_or_one_in_n() -> None:
    base = load_model("nemotron-3-super")
    count = sum(layer.mixer is not None for layer in base.layers)
    assert resized(base, mixers="attention").state_bytes_per_sequence == 0
    assert resized(base, mixers="mamba2").kv_bytes_per_token() == 0
    some = resized(base, mixers="attention/8")
    assert sum(bool(layer.mixer and layer.mixer.kv_elements_per_token) for layer in some.layers) == count // 8
    with pytest.raises(UsageError, match="attention/N"):
        resized(base, mixers="rwkv")


def expert_bytes(tokens: int, latent: bool) -> float:
    """Of the example in the reference: α = 4, N = 128, K = 6."""
    moe = {"experts": 512, "top_k": 6, "latent": 1024} if latent else {"experts": 128, "top_k": 6, "latent": 0}
    designs = designs_of("nemotron-3-super", {"width": 2688, "shared": 0, **moe})
    prices = RooflinePrices(load_hardware("h200-sxm"), "bf16")
    return float(design_costs(designs, OperatingPoint("x", tokens, 1), prices).expert_bytes_read[0])


@pytest.mark.parametrize(("tokens", "factor"), [(1, 4.0), (64, 1.8), (256, 1.0), (1024, 1.0)])
def test_the_efficiency_variant_reads_alpha_times_fewer_expert_bytes_until_all_experts_are_touched(
    tokens: int, factor: float
) -> None:
    assert expert_bytes(tokens, False) / expert_bytes(tokens, True) == pytest.approx(factor, rel=0.1)


def test_traffic_between_devices_shrinks_by_alpha_whatever_the_batch() -> None:
    prices = RooflinePrices(load_hardware("h200-sxm"), "bf16")
    designs = designs_of(
        "nemotron-3-super",
        {"experts": 128, "top_k": 6, "width": 2688, "latent": 0, "shared": 0},
        {"experts": 512, "top_k": 6, "width": 2688, "latent": 1024, "shared": 0},
        {"experts": 512, "top_k": 24, "width": 2688, "latent": 1024, "shared": 0},
    )
    for batch in (8, 512, 4096):
        costs = design_costs(designs, OperatingPoint("x", batch, 64, layout=Layout(1, 8, 8)), prices)
        sent = costs.all_to_all_bytes
        assert sent[0] / sent[1] == pytest.approx(4.0)
        assert sent[2] == pytest.approx(sent[0])


def test_parts_add_up_bounds_divide_the_time_and_more_work_never_takes_less() -> None:
    prices = RooflinePrices(load_hardware("b200"), "bf16")
    designs = Designs.of([load_model("nemotron-3-super")])
    before = 0.0
    for batch in (8, 64, 512, 4096):
        costs = design_costs(designs, OperatingPoint("x", batch, 2048, layout=Layout(2, 8, 4)), prices)
        assert set(costs.parts) == set(PARTS)
        assert sum(part.seconds[0] for part in costs.parts.values()) == pytest.approx(costs.seconds[0])
        assert sum(v[0] for v in costs.bound_seconds().values()) == pytest.approx(costs.seconds[0])
        assert costs.mixture_seconds()[0] == pytest.approx(sum(costs.parts[n].seconds[0] for n in OF_MIXTURE))
        assert costs.seconds[0] >= before
        before = float(costs.seconds[0])


def test_devices_share_the_memory_and_a_model_on_one_holds_all_of_it() -> None:
    prices = RooflinePrices(load_hardware("h200-sxm"), "bf16")
    model = load_model("qwen3-30b-a3b")
    one = design_costs(Designs.of([model]), OperatingPoint("x", 8, 100), prices).memory_bytes[0]
    whole = model.weight_bytes("bf16") + 8 * model.kv_bytes(100)
    assert one == pytest.approx(whole, rel=1e-3)
    shared = design_costs(Designs.of([model]), OperatingPoint("x", 8, 100, layout=Layout(1, 8, 8)), prices)
    routed = model.weight_bytes("bf16") - model.resident_bytes()
    assert shared.memory_bytes[0] == pytest.approx(model.resident_bytes() + routed / 8 + model.kv_bytes(100), rel=1e-3)


def test_several_devices_need_a_link_that_the_sheet_states() -> None:
    hardware = dataclasses.replace(load_hardware("h200-sxm"), device_link=None)
    with pytest.raises(UsageError, match="device_link"):
        design_costs(
            Designs.of([load_model("nemotron-3-super")]), OperatingPoint("x", 8, 10, layout=Layout(1, 8, 8)),
            RooflinePrices(hardware, "bf16"),
        )  # fmt: skip


def test_layouts_and_points_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match="does not divide"):
        Layout(tp=2, ep=3, dp=2)
    with pytest.raises(UsageError, match="dealt out"):
        OperatingPoint("x", 7, 10, layout=Layout(1, 2, 2))
    with pytest.raises(UsageError, match="number format"):
        OperatingPoint("x", 8, 10, weights="fp7")
    with pytest.raises(UsageError, match="load distribution"):
        OperatingPoint("x", 8, 10, load="normal")


def test_each_constraint_says_how_many_it_removes_and_a_contradiction_names_its_pair() -> None:
    rows = [{"experts": n, "top_k": 6, "width": w, "latent": 0, "shared": 0} for n in (4, 64, 128) for w in (100, 2688)]
    designs = designs_of("nemotron-3-super", *rows)
    point = OperatingPoint("x", 8, 10)
    found = checked(designs, Limits(memory=False), [point], None)
    assert found.removed == {"top-k": 2, "latent": 0, "multiple": 3, "layout": 0}
    assert found.feasible.tolist() == [False, False, False, True, False, True]
    total = designs.total_params
    with pytest.raises(UsageError, match=r"contradict each other: .*max_total_params .* and min_active_params "):
        checked(designs, Limits(multiple=1, memory=False, max_total_params=float(total.min()),
                                min_active_params=float(designs.active_params.max())), [point], None)  # fmt: skip


def test_the_front_is_what_a_slow_comparison_of_all_pairs_finds() -> None:
    rng = np.random.default_rng(0)
    for columns in (1, 2, 3, 4):
        values = rng.integers(0, 6, (200, columns)).astype(float)
        values[::17, 0] = np.nan
        slow = [
            bool(np.isfinite(row).all())
            and not any((other <= row).all() and (other < row).any() for other in values if np.isfinite(other).all())
            for row in values
        ]
        assert front(values).tolist() == slow
    assert not front(np.full((3, 2), np.nan)).any()


def test_the_knee_lies_nearest_to_the_best_of_everything() -> None:
    assert knee(np.array([[0.0, 10.0], [1.0, 1.0], [10.0, 0.0]])) == 1
    assert knee(np.array([[2.0, 2.0]])) == 0


def test_experts_in_the_example_are_those_of_the_catalog() -> None:
    moe = load_model("nemotron-3-super").moe
    assert isinstance(moe, MoeFfn)
    assert (moe.latent, moe.num_experts, moe.top_k) == (1024, 512, 22)
