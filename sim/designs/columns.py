"""Many designs as columns: what surrounds the mixture as a few whole models, the mixture's shape as numbers.

Letters as in arXiv 2601.18089: d hidden, ℓ latent, N experts, K per token, m of an expert, g matrices per expert. R designs.
Every formula here is `ModelSpec`'s over arrays; a test demands that the two agree to the parameter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ..active_flops import active_flops
from ..ffn import MoeFfn
from ..mixers import weights_in
from ..model import Layer, ModelSpec

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
SHAPE = ("experts", "top_k", "width", "latent", "shared")
"""The mixture's columns. `latent` 0: a standard mixture; `shared` 0: no shared expert."""


@dataclass(frozen=True)
class Designs:
    """R designs. `skeletons` are models whose mixture is only a place holder; `skeleton` [R] says which surrounds it."""

    skeletons: tuple[ModelSpec, ...]
    skeleton: Ints
    experts: Ints
    top_k: Ints
    width: Ints
    latent: Ints
    shared: Ints

    def __len__(self) -> int:
        return len(self.skeleton)

    @classmethod
    def of(cls, models: Sequence[ModelSpec]) -> Designs:
        """Designs of whole models, one each. Raises `UsageError` for a dense one."""
        shapes = [_shape_of(model) for model in models]
        columns = {name: np.array([shape[name] for shape in shapes], np.int64) for name in SHAPE}
        return cls(tuple(models), np.arange(len(models)), **columns)

    def take(self, rows: NDArray[Any]) -> Designs:
        """Some of them, by index or mask."""
        columns = {name: getattr(self, name)[rows] for name in SHAPE}
        return Designs(self.skeletons, self.skeleton[rows], **columns)

    def spec(self, row: int, name: str | None = None) -> ModelSpec:
        """One design as a model."""
        model = self.skeletons[int(self.skeleton[row])]
        shape = {column: int(getattr(self, column)[row]) for column in SHAPE}
        return with_mixture(model, name or f"{model.name}/{design_name(shape)}", **shape)

    def _of_skeleton(self, values: Sequence[float]) -> Floats:
        return np.asarray(values, np.float64)[self.skeleton]

    @property
    def mixture(self) -> MoeFfn:
        """The base's mixture: whatever the columns do not say (gate, biases, norms) is as in it."""
        return self.skeletons[0].moe

    @property
    def matrices(self) -> int:
        """g."""
        return 3 if self.mixture.gated else 2

    @property
    def hidden(self) -> Floats:
        """d."""
        return self._of_skeleton([model.hidden for model in self.skeletons])

    @property
    def expert_width(self) -> Floats:
        """What a routed expert reads and writes: ℓ, or d in a standard mixture."""
        return np.where(self.latent > 0, self.latent, self.hidden)

    @property
    def moe_layers(self) -> Floats:
        return self._of_skeleton([len(model.moe_layer_ids) for model in self.skeletons])

    @property
    def expert_params(self) -> Floats:
        """Of one routed expert: g·w·m, and its biases."""
        bias = ((self.matrices - 1) * self.width + self.expert_width) * self.mixture.expert_bias
        return np.asarray(self.matrices * self.expert_width * self.width + bias)

    @property
    def latent_params(self) -> Floats:
        """The two projections of one layer, 2·d·ℓ, and the latent norm; 0 in a standard mixture."""
        return np.asarray(2.0 * self.hidden * self.latent + self.latent * self.mixture.latent_norm)

    @property
    def router_params(self) -> Floats:
        return np.asarray(self.hidden * self.experts + self.experts * self.mixture.router_bias)

    @property
    def shared_params(self) -> Floats:
        gate = self.hidden * (self.mixture.shared_gate * (self.shared > 0))
        return np.asarray(self.matrices * self.hidden * self.shared + gate)

    @property
    def beside_params(self) -> Floats:
        """Of one MoE layer, what every token uses: router, shared expert, latent projections."""
        return self.router_params + self.shared_params + self.latent_params

    @property
    def around_params(self) -> Floats:
        """Outside the mixtures: embedding and head, mixers, norms, dense layers."""
        held = [
            model.resident_params - sum(moe.resident_weights for moe in _mixtures(model))
            for model in self.skeletons
        ]
        return self._of_skeleton(held)

    @property
    def embedding_params(self) -> Floats:
        return self._of_skeleton([model.embedding_params for model in self.skeletons])

    @property
    def total_params(self) -> Floats:
        return (
            self.around_params
            + (self.beside_params + self.experts * self.expert_params) * self.moe_layers
        )

    @property
    def active_params(self) -> Floats:
        """Both embedding matrices counted (`sim.model.ACTIVE_MEANS`)."""
        return (
            self.around_params + (self.beside_params + self.top_k * self.expert_params) * self.moe_layers
        )

    @property
    def active_flops_per_token(self) -> Floats:
        """Products with the matrices that a token uses, as `sim.active_flops` counts them; mixing over a context is not in."""
        around = [active_flops(m).weights - 2 * _mixture_matrices(m) for m in self.skeletons]
        routed = self.top_k * self.matrices * self.expert_width * self.width
        beside = self.hidden * self.experts + self.shared_params + 2.0 * self.hidden * self.latent
        return self._of_skeleton(around) + 2.0 * (routed + beside) * self.moe_layers

    def columns(self) -> dict[str, Any]:
        """For a table: the shape and what follows from it."""
        return {
            "hidden": self.hidden.astype(np.int64),
            "layers": self._of_skeleton([len(m.layers) for m in self.skeletons]).astype(np.int64),
            **{name: getattr(self, name) for name in SHAPE},
            "total_params": self.total_params,
            "active_params": self.active_params,
            "active_flops_per_token": self.active_flops_per_token,
        }


def design_name(shape: Mapping[str, int]) -> str:
    """N128-K6-m1856, with -l1024 and -s3712 where there are a latent width and a shared expert."""
    text = f"N{shape['experts']}-K{shape['top_k']}-m{shape['width']}"
    if shape["latent"]:
        text += f"-l{shape['latent']}"
    return text + (f"-s{shape['shared']}" if shape["shared"] else "")


def _mixture_matrices(model: ModelSpec) -> int:
    """Weights that a token uses of the matrices of all mixtures."""
    return sum(
        moe.top_k * weights_in(moe.expert_matrices) + moe.hidden * moe.num_experts + weights_in(moe.shared_matrices)
        + 2 * moe.hidden * (moe.latent or 0)
        for moe in _mixtures(model)
    )  # fmt: skip


def _mixtures(model: ModelSpec) -> list[MoeFfn]:
    return [layer.moe for layer in model.layers if layer.moe is not None]


def _shape_of(model: ModelSpec) -> dict[str, int]:
    moe = model.moe
    return {
        "experts": moe.num_experts, "top_k": moe.top_k, "width": moe.intermediate, "latent": moe.latent or 0,
        "shared": moe.shared_intermediate,
    }  # fmt: skip


def with_mixture(
    model: ModelSpec, name: str, *, experts: int, top_k: int, width: int, latent: int, shared: int
) -> ModelSpec:
    """The model with another mixture in every MoE layer. Raises `UsageError` for a shape that cannot be."""
    if not 1 <= top_k <= experts:
        raise UsageError(f"design {name}: top_k must be from 1 to experts = {experts}, got {top_k}")
    for what, value, least in (("width", width, 1), ("latent", latent, 0), ("shared", shared, 0)):
        if value < least:
            raise UsageError(f"design {name}: {what} must be at least {least}, got {value}")
    made: list[Layer] = []
    for layer in model.layers:
        if layer.moe is None:
            made.append(layer)
            continue
        moe = replace(
            layer.moe, num_experts=experts, top_k=top_k, intermediate=width, latent=latent or None,
            shared_intermediate=shared,
        )  # fmt: skip
        made.append(replace(layer, ffn=moe))
    return replace(model, name=name, layers=tuple(made))
