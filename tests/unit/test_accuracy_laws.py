"""Accuracy laws: the numbers their papers print, refusal outside the fitted range, and what a latent expert counts as."""

from __future__ import annotations

import json

import numpy as np
import pytest
from codesign.errors import UsageError
from codesign.sim.accuracy import ACCURACY_LAWS, NOT_LATENT, AccuracyInputs, accuracy_law
from codesign.sim.catalog import load_model

D2 = 512**2
# Per law: a design inside its range, and the ends of a sweep of its tokens and of its parameters that stay inside.
INSIDE = {
    "krajewski-2024": ({"expert_params": 2 * D2, "num_experts": 256, "top_k": 4}, (1e9, 1 / 43, 3e10), (16e9, 130e9), (129e6, 3.7e9)),
    "krajewski-2024-e16": ({"expert_params": 2 * D2, "num_experts": 64, "top_k": 4}, (1e8, 1 / 11, 2e10), (8e9, 66e9), (35e6, 540e6)),
    "abnar-2025": ({"expert_params": 6 * D2, "num_experts": 16, "top_k": 2}, (2e9, 0.2, 5e10), (2e10, 3e11), (1e9, 1.5e10)),
    "ludziejewski-2025": ({"expert_params": 9 * D2, "num_experts": 8, "top_k": 1}, (2e9, 0.25, 1e10), (1e9, 3e10), (8e8, 1e10)),
    "ling-2025": (
        {"expert_params": 3 * D2, "num_experts": 64, "top_k": 2, "shared_params": 3 * D2},
        (3e9, 0.1, 2e10), (1e9, 1e11), (1e9, 2e10),
    ),
}  # fmt: skip


def design(law: str, total: object = None, tokens: object = None) -> AccuracyInputs:
    shape, (usual_total, active, usual_tokens), _, _ = INSIDE[law]
    total_params = np.asarray(usual_total if total is None else total, float)
    return AccuracyInputs.of(
        hidden=512, total_params=total_params, active_params=active * total_params,
        training_tokens=usual_tokens if tokens is None else tokens, **shape,
    )  # fmt: skip


def compute_optimum(law: str, expansion: int, flops: float) -> tuple[float, float, int, float]:
    """(active parameters, tokens, granularity, loss) that minimise the loss under section 6.2 of arXiv 2402.07871."""
    layers = np.geomspace(2, 400, 4001)[:, None]
    hidden = 64 * layers
    granularity = 2.0 ** np.arange(8)[None, :]
    tokens = flops / ((12 * hidden**2 * 6 + hidden * expansion * granularity * 14) * layers)
    total = hidden**2 * (8 * expansion + 4) * layers
    loss = accuracy_law(law).unchecked(total_params=total, training_tokens=tokens, granularity=granularity)
    row, column = np.unravel_index(loss.argmin(), loss.shape)
    active = float(12 * hidden[row, 0] ** 2 * layers[row, 0])
    return active, float(tokens[row, column]), int(granularity[0, column]), float(loss[row, column])


@pytest.mark.parametrize(
    ("flops", "active", "tokens", "granularity", "loss"),
    [
        (2.95e18, 100e6, 4.37e9, 8, 3.133),
        (1.93e20, 1e9, 28.94e9, 16, 2.491),
        (1.41e21, 3e9, 72.90e9, 16, 2.245),
        (6.46e21, 7e9, 137.60e9, 32, 2.076),
        (4.16e23, 70e9, 941.07e9, 32, 1.694),
    ],
)
def test_the_fine_grained_law_gives_the_compute_optima_of_its_table_2(
    flops: float, active: float, tokens: float, granularity: int, loss: float
) -> None:
    found = compute_optimum("krajewski-2024", 64, flops)
    assert found[0] == pytest.approx(active, rel=0.05)
    assert found[1] == pytest.approx(tokens, rel=0.05)
    assert found[2] == granularity
    # Coefficients are printed with three digits at most: every loss comes out 0.7 to 0.9 % low.
    assert 0.99 * loss < found[3] < 0.995 * loss


def test_the_fine_grained_law_at_an_expansion_of_16_stays_in_the_bands_of_its_table_9() -> None:
    for flops, active, low, high in ((8.2e18, 1e8, 10.29e9, 17.73e9), (4.6e20, 1e9, 53.74e9, 103.54e9)):
        found = compute_optimum("krajewski-2024-e16", 16, flops)
        assert found[0] == pytest.approx(active, rel=0.05)
        assert low < found[1] < high
        assert found[2] == 16


@pytest.mark.parametrize(
    ("experts", "m", "mu", "n", "nu"),
    [
        (1, 30.3640, -0.1817, 53.9838, -0.1965),
        (2, 27.7982, -0.1780, 66.8401, -0.2065),
        (4, 24.8462, -0.1731, 87.7022, -0.2192),
        (8, 21.8330, -0.1676, 119.9126, -0.2338),
        (16, 19.0159, -0.1617, 167.5073, -0.2494),
        (32, 16.5424, -0.1557, 234.6726, -0.2652),
    ],
)
def test_the_joint_law_reduces_to_its_table_4_for_a_given_number_of_experts(
    experts: int, m: float, mu: float, n: float, nu: float
) -> None:
    active, tokens = np.meshgrid(np.geomspace(79e6, 2.7e9, 5), np.geomspace(5e8, 8e10, 5))
    found = accuracy_law("ludziejewski-2025").unchecked(experts=experts, active_params=active, training_tokens=tokens)
    np.testing.assert_allclose(found, m * active**mu + n * tokens**nu + 1.3637, atol=0.004)


@pytest.mark.parametrize(("experts", "active", "tokens"), [(1, 1.7e9, 9.7e9), (8, 990e6, 17e9), (32, 669e6, 24.9e9)])
def test_the_joint_law_has_the_compute_optima_of_its_table_1(experts: int, active: float, tokens: float) -> None:
    sizes = np.geomspace(1e8, 1e10, 4001)
    loss = accuracy_law("ludziejewski-2025").unchecked(
        experts=experts, active_params=sizes, training_tokens=1e20 / (6 * sizes)
    )
    best = sizes[loss.argmin()]
    assert best == pytest.approx(active, rel=0.03)
    assert 1e20 / (6 * best) == pytest.approx(tokens, rel=0.03)


def test_the_sparsity_law_says_what_its_paper_concludes() -> None:
    """At equal compute: sparser optima are larger, use fewer parameters a token and lose less (sections 2.1 and 3)."""
    law = accuracy_law("abnar-2025")
    sizes = np.geomspace(1e8, 3e10, 2001)
    best = []
    for sparsity in (0.0, 0.5, 0.75, 0.9, 0.95):
        tokens = 1e20 / (6 * sizes * (1 - sparsity))
        loss = law.unchecked(total_params=sizes, training_tokens=tokens, sparsity=sparsity)
        best.append((sizes[loss.argmin()], -sizes[loss.argmin()] * (1 - sparsity), -loss.min()))
    assert np.all(np.diff(best, axis=0) > 0)

    def best_sparsity(total: float, flops: float) -> float:
        sparsities = np.linspace(0, 0.95, 96)
        tokens = flops / (6 * total * (1 - sparsities))
        return float(sparsities[law.unchecked(total_params=total, training_tokens=tokens, sparsity=sparsities).argmin()])

    assert best_sparsity(2e8, 1e20) < best_sparsity(5e8, 1e20) < best_sparsity(2e9, 1e20)  # figure 4, along N
    assert best_sparsity(1e9, 1e21) < best_sparsity(1e9, 1e20) < best_sparsity(1e9, 3e19)  # … and along C
    assert best_sparsity(2e8, 1e21) == 0  # appendix D.2: small models are best dense


def test_the_leverage_law_gives_its_abstracts_claims_only_with_the_bases_it_is_written_with() -> None:
    law = accuracy_law("ling-2025")
    claimed = {"activation_ratio": 0.031, "granularity": 12, "training_flops": 1e22}
    assert 7 < law.unchecked(**claimed) < 7.5
    fine = np.linspace(2, 16, 141)
    swept = law.unchecked(activation_ratio=0.031, granularity=fine, training_flops=1e20)
    assert 8 <= fine[swept.argmax()] <= 12
    dense = {"activation_ratio": 1.0, "granularity": 2, "training_flops": 1e20}
    assert law.unchecked(**dense) == pytest.approx(1, abs=0.02)
    # Â = 0.0473 for A = 3.1 %: other bases of the two logarithms miss the first claim by far, or have their best G elsewhere.
    effective, c = 0.031 + 1.63e-2, law.coefficients
    found = set()
    for flops_log in (22.0, 22 * np.log(10), 22 * np.log2(10)):
        for base in (2.0, np.e, 10.0):
            g = np.log(12) / np.log(base)
            value = effective ** (c["a"] + c["d"] * flops_log + c["gamma"] * g**2 + c["beta"] * g)
            best_g = base ** (-c["beta"] / (2 * c["gamma"]))
            if 7 < value < 20 and 8 <= best_g <= 12:
                found.add((flops_log, base))
    assert found == {(22.0, 2.0)}


@pytest.mark.parametrize("name", ACCURACY_LAWS)
def test_more_tokens_and_more_parameters_are_better_inside_the_range(name: str) -> None:
    law = accuracy_law(name)
    _, _, tokens, total = INSIDE[name]
    sign = -1 if law.better == "lower" else 1
    for inputs in (design(name, tokens=np.geomspace(*tokens, 9)), design(name, total=np.geomspace(*total, 9))):
        found = law.estimate(inputs)
        assert not found.refused.any(), found.refusals()
        assert found.reason(0) is None
        assert np.all(sign * np.diff(found.value) > 0)


@pytest.mark.parametrize("name", ACCURACY_LAWS)
def test_outside_its_range_a_law_refuses_and_says_which_input(name: str) -> None:
    found = accuracy_law(name).estimate(design(name, tokens=[INSIDE[name][1][2], 1e15]))
    assert found.refused.tolist() == [False, True]
    assert np.isnan(found.value[1])
    reason = str(found.reason(1))
    blamed = next(one for one in found.law.inputs if found.outside[one.name][1])
    assert blamed.name in reason
    assert f"{found.values[blamed.name][1]:.4g}" in reason
    assert blamed.range_text in reason
    assert found.refusals()[blamed.name] == 1


def test_a_hundred_thousand_designs_agree_with_each_alone() -> None:
    tokens = np.geomspace(1e9, 1e12, 100_000)
    many = accuracy_law("krajewski-2024").estimate(design("krajewski-2024", tokens=tokens))
    for row in (0, 40_000, 60_000, 99_999):
        alone = accuracy_law("krajewski-2024").estimate(design("krajewski-2024", tokens=tokens[row]))
        np.testing.assert_equal(many.value[row], alone.value[0])
        assert many.reason(row) == alone.reason(0)


def test_another_expansion_rate_is_refused_and_finer_experts_than_the_runs_had_are_told() -> None:
    odd = AccuracyInputs.of(
        hidden=512, expert_params=D2, num_experts=64, top_k=8, total_params=1e9, active_params=2e8, training_tokens=1e10
    )
    assert "expansion_rate = 8 is outside the fitted 60.8 to 67.2 times" in str(accuracy_law("krajewski-2024").estimate(odd).reason(0))
    joint = accuracy_law("ludziejewski-2025").estimate(odd)
    assert joint.reason(0) is None
    # Nine full-size d² to one: experts nine times as fine, eight of them at once; all runs had one of full size.
    assert "granularity = 9 where every fitted run had 0.95 to 1.05" in str(joint.departure(0))
    assert "top_k = 8 where every fitted run had 1" in str(joint.departure(0))


@pytest.mark.parametrize("name", ACCURACY_LAWS)
def test_every_law_names_source_coefficients_ranges_and_caveats(name: str) -> None:
    law = accuracy_law(name)
    said = law.to_dict()
    assert json.loads(json.dumps(said)) == said
    assert law.arxiv in law.source
    assert law.where in law.source
    assert NOT_LATENT in law.caveats
    assert all(one.low <= one.high and one.meaning for one in (*law.inputs, *law.held))
    # Every coefficient stands in the formula that is shown.
    assert [key for key in law.coefficients if key not in law.formula] == []
    assert law.name == name


def test_an_unknown_law_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'krajewski-2024'"):
        accuracy_law("krajewski-2023")


def test_a_latent_expert_weighs_its_latent_width_and_counts_as_finer() -> None:
    model = load_model("nemotron-3-super")
    inputs = AccuracyInputs.of_model(model, [1e11, 2e12])
    assert len(inputs) == 2
    assert inputs.expert_params[0] == 2 * 1024 * 2688
    standard = 2 * 4096 * 2688
    assert inputs.granularity(8.0)[0] == pytest.approx(4096 / 1024 * (8.0 * 4096**2 / standard))
    shared = 2 * 4096 * 5376
    assert inputs.expansion_rate[0] == pytest.approx(
        (512 * inputs.expert_params[0] + shared) / (22 * inputs.expert_params[0] + shared)
    )
    assert inputs.sparsity[0] == pytest.approx(1 - 1 / inputs.expansion_rate[0])
    everything = inputs.total_params + inputs.embedding_params + inputs.router_params
    assert everything[0] == model.total_params
    for law in ACCURACY_LAWS.values():
        assert law.estimate(inputs).refused.all(), "a 120 B model is beyond every fit"


def test_sizes_that_cannot_be_are_named() -> None:
    good = {"hidden": 512, "expert_params": D2, "num_experts": 8, "top_k": 2, "total_params": 1e9, "active_params": 2e8}
    with pytest.raises(UsageError, match=r"training_tokens = 0 in row 1, must be a finite number above 0"):
        AccuracyInputs.of(**good, training_tokens=[1e9, 0])
    with pytest.raises(UsageError, match=r"top_k = 9 in row 0, must be at most the number of experts"):
        AccuracyInputs.of(**{**good, "top_k": 9}, training_tokens=1e9)
    with pytest.raises(UsageError, match="differ in length"):
        AccuracyInputs.of(**{**good, "hidden": [1, 2, 3]}, training_tokens=[1e9, 1e9])
    with pytest.raises(UsageError, match="is dense"):
        AccuracyInputs.of_model(load_model("llama-3.1-8b"), 1e12)
