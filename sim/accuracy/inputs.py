"""What the accuracy laws are asked about: the sizes of R designs and the tokens each is trained on, as plain arrays.

No published law was fitted on a latent mixture. Here a latent expert enters by what it weighs: it is a mixture's expert
of g·ℓ·m parameters (g matrices, latent width ℓ, intermediate width m) where a standard one has g·d·m. So every share
and every granularity is a ratio of parameters, which for standard experts of one shape equals the papers' ratios of
counts and widths. The two shared projections of a latent layer (2·d·ℓ) are parameters that every token uses; they are
in the totals and in no ratio of experts.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import UsageError
from ..model import ModelSpec

FloatArray = NDArray[np.float64]

_MAY_BE_ZERO = ("shared_params", "embedding_params", "router_params")


@dataclass(frozen=True, eq=False)
class AccuracyInputs:
    """Sizes of R designs, each field [R]. Build it with `of` (arrays or numbers) or `of_model`.

    Raises `UsageError` naming field, row and value where a size is not finite, not positive (shared experts, embedding
    and routers may be 0), more experts are used than there are, or more parameters are active than exist.
    """

    hidden: FloatArray
    """d, the model's width."""
    expert_params: FloatArray
    """Parameters of one routed expert of one layer: g·d·m, in a latent mixture g·ℓ·m."""
    num_experts: FloatArray
    """N, routed experts of one layer."""
    top_k: FloatArray
    """K, routed experts that one token uses in one layer."""
    shared_params: FloatArray
    """Parameters of all shared experts of one layer together: 0 without any."""
    total_params: FloatArray
    """Parameters of the model without embedding, output head and routers; latent projections included."""
    active_params: FloatArray
    """Those of `total_params` that one token uses."""
    embedding_params: FloatArray
    """Input embedding and, where it is not tied, output head."""
    router_params: FloatArray
    """Routers of all layers together."""
    training_tokens: FloatArray
    """D, tokens seen in training."""

    def __post_init__(self) -> None:
        names = [field.name for field in fields(self)]
        for name in names:
            values = getattr(self, name)
            if name in _MAY_BE_ZERO:
                _require(name, values, np.isfinite(values) & (values >= 0), "a finite number, 0 or above")
            else:
                _require(name, values, np.isfinite(values) & (values > 0), "a finite number above 0")
        _require("top_k", self.top_k, self.top_k <= self.num_experts, "at most the number of experts")
        _require(
            "active_params",
            self.active_params,
            self.active_params <= self.total_params,
            "at most total_params",
        )

    def __len__(self) -> int:
        return len(self.hidden)

    @classmethod
    def of(
        cls,
        *,
        hidden: ArrayLike,
        expert_params: ArrayLike,
        num_experts: ArrayLike,
        top_k: ArrayLike,
        total_params: ArrayLike,
        active_params: ArrayLike,
        training_tokens: ArrayLike,
        shared_params: ArrayLike = 0.0,
        embedding_params: ArrayLike = 0.0,
        router_params: ArrayLike = 0.0,
    ) -> AccuracyInputs:
        """Designs from arrays [R] and numbers, which are the same for every row. Sizes as the fields say."""
        given = (
            hidden, expert_params, num_experts, top_k, shared_params, total_params, active_params, embedding_params,
            router_params, training_tokens,
        )  # fmt: skip
        try:
            columns = np.broadcast_arrays(
                *(np.atleast_1d(np.asarray(values, np.float64)) for values in given)
            )
        except ValueError as error:
            lengths = {field.name: np.shape(values) for field, values in zip(fields(cls), given, strict=True)}
            raise UsageError(f"accuracy inputs differ in length: {lengths}") from error
        return cls(*columns)

    @classmethod
    def of_model(cls, model: ModelSpec, training_tokens: ArrayLike) -> AccuracyInputs:
        """One row for each number of training tokens. Raises `UsageError` for a dense model.

        The mixture is that of the model's MoE layers; dense layers, attention and latent projections count in the
        totals only.
        """
        moe = model.moe
        routers = sum(layer.moe.router_weights for layer in model.layers if layer.moe is not None)
        outside_law = model.embedding_params + routers
        return cls.of(
            hidden=model.hidden,
            expert_params=moe.expert_weights,
            num_experts=moe.num_experts,
            top_k=moe.top_k,
            shared_params=sum(rows * columns for rows, columns in moe.shared_matrices),
            total_params=model.total_params - outside_law,
            active_params=model.active_params - outside_law,
            embedding_params=model.embedding_params,
            router_params=routers,
            training_tokens=training_tokens,
        )

    @property
    def active_expert_params(self) -> FloatArray:
        """[R] parameters of one MoE layer's experts, shared ones included, that one token uses."""
        return self.top_k * self.expert_params + self.shared_params

    @property
    def activation_ratio(self) -> FloatArray:
        """[R] expert parameters a token uses over all expert parameters of a layer, shared ones in both.

        For equal experts this is (K + shared)/(N + shared). In a latent mixture a shared expert of the model's width
        weighs more than a routed one of the same m, and counts so.
        """
        return self.active_expert_params / (self.num_experts * self.expert_params + self.shared_params)

    @property
    def sparsity(self) -> FloatArray:
        """[R] expert parameters of a layer that a token does not use, over all of them: 1 − K/N without shared experts."""
        return 1.0 - self.activation_ratio

    @property
    def expansion_rate(self) -> FloatArray:
        """[R] all expert parameters of a layer over those that a token uses: N/K without shared experts."""
        return 1.0 / self.activation_ratio

    @property
    def shared_share(self) -> FloatArray:
        """[R] shared experts' part of the expert parameters that a token uses, 0 … 1."""
        return self.shared_params / self.active_expert_params

    @property
    def tokens_per_active_param(self) -> FloatArray:
        """[R] training tokens over active parameters, embeddings included."""
        return self.training_tokens / (self.active_params + self.embedding_params)

    def granularity(self, dense_ffn_params_per_d2: float) -> FloatArray:
        """[R] into how many experts the paper's dense feed-forward of `dense_ffn_params_per_d2` · d² parameters splits.

        The papers divide widths: 4d/m with two matrices a feed-forward (8·d² parameters), 4d/m with three (12·d²), 2d/m
        with three (6·d²). The ratio of parameters equals each of them for a standard expert with the paper's number of
        matrices, and makes a latent expert d/ℓ times as fine as a standard one of the same m.
        """
        return dense_ffn_params_per_d2 * self.hidden**2 / self.expert_params


def _require(name: str, values: FloatArray, holds: NDArray[np.bool_], rule: str) -> None:
    wrong = np.flatnonzero(~holds)
    if len(wrong):
        row = int(wrong[0])
        raise UsageError(
            f"accuracy inputs: {name} = {values[row]:g} in row {row}, must be {rule} ({len(wrong)} rows are wrong)"
        )
