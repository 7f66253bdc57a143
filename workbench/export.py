"""A chosen configuration as flags of the engines people serve with, and what those engines cannot express.

The flags stand as the engines' own help gave them in 2026: llama.cpp's server README; vLLM's engine arguments (offload backends
`uva` and `prefetch`); SGLang's server arguments, its `--kt-…` ones from kt-kernel. None of the three has an expert cache that
evicts by a policy while it decodes, so a policy becomes the static placement that is nearest to it, and the text says so.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, unknown_name

if TYPE_CHECKING:
    from ..sim.model import ModelSpec
    from .scenario import Scenario

ENGINES = ("llama.cpp", "vllm", "sglang")
_KV = {"llama.cpp": "f16", "vllm": "auto", "sglang": "auto"}


@dataclass(frozen=True, slots=True)
class Exported:
    """Flags, and what is lost on the way."""

    engine: str
    command: tuple[str, ...]
    cannot: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        return {
            "engine": self.engine, "command": list(self.command), "line": shlex.join(self.command),
            "cannot_express": list(self.cannot), "notes": list(self.notes),
        }  # fmt: skip

    def lines(self) -> list[str]:
        found = [shlex.join(self.command)]
        found += [f"  note: {note}" for note in self.notes]
        return found + [f"  {self.engine} cannot express: {what}" for what in self.cannot]


@dataclass(frozen=True, slots=True)
class _Choice:
    """What a scenario decides, in the terms that engines have. Experts of all layers together."""

    model: ModelSpec
    resident: int
    policy: str
    prefetch: str
    batch: int
    context: int
    weights: str
    home: str
    expert_bytes: int

    @property
    def layers(self) -> int:
        return len(self.model.moe_layer_ids)

    @property
    def everything(self) -> int:
        return self.layers * self.model.num_experts

    @property
    def offloaded_bytes(self) -> int:
        return (self.everything - self.resident) * self.expert_bytes


def export(
    scenario: str | Path,
    to: str,
    *,
    policy: str | None = None,
    prefetch: str | None = None,
    capacity: str | None = None,
) -> Exported:
    """The flags that come nearest to a scenario. Where it lists several, `policy`, `prefetch` and `capacity` say which.

    Raises `UsageError` where the scenario leaves open what is to be exported.
    """
    if to not in ENGINES:
        raise unknown_name("engine", to, ENGINES)
    from ..sim.catalog import load_model
    from .scenario import load_scenario

    found = load_scenario(scenario)
    if found.model is None:
        raise UsageError(f"{scenario}: names no model, and flags depend on its layers and experts")
    beside = Path(scenario).resolve().parent / found.model
    model = load_model(str(beside if beside.is_file() else found.model))
    chosen = {
        name: _one(name, given, getattr(found, plural), scenario)
        for name, given, plural in (
            ("policy", policy, "policies"), ("prefetch", prefetch, "prefetch"), ("capacity", capacity, "capacities"),
        )
    }  # fmt: skip
    choice = _Choice(
        model, _resident(chosen["capacity"], model, found), chosen["policy"], chosen["prefetch"], found.batch or 1,
        found.context, found.weights, found.experts_home, model.expert_bytes(found.weights),
    )  # fmt: skip
    write: dict[str, Callable[[_Choice], Exported]] = {
        "llama.cpp": _llama_cpp,
        "vllm": _vllm,
        "sglang": _sglang,
    }
    return write[to](choice)


def _one(name: str, given: str | None, listed: tuple[str, ...], scenario: str | Path) -> str:
    if given is not None:
        if given not in listed:
            raise UsageError(f"{scenario}: {name} {given!r} is not among those it lists: {', '.join(listed)}")
        return given
    if len(listed) != 1:
        raise UsageError(
            f"{scenario}: lists {', '.join(listed)}; say which {name} is to be exported (--{name})"
        )
    return listed[0]


def _resident(label: str, model: ModelSpec, scenario: Scenario) -> int:
    """Experts that stay on the device."""
    from .cases import cache_sizes

    auto = None
    if label == "auto":
        if scenario.hardware is None:
            raise UsageError(
                "capacity auto is what a machine has left for experts: the scenario names no hardware"
            )
        from ..sim.capacity import auto_capacity
        from ..sim.catalog import load_hardware

        auto = auto_capacity(
            model, load_hardware(scenario.hardware), weights=scenario.weights, context_tokens=scenario.context,
            batch=scenario.batch or 1,
        )  # fmt: skip
    sizes, _ = cache_sizes(
        [label], num_layers=len(model.moe_layer_ids), num_experts=model.num_experts, top_k=model.top_k,
        scope="global", contract="slots", expert_bytes=model.expert_bytes(scenario.weights), auto_experts=auto,
    )  # fmt: skip
    return sizes[0].experts


def _llama_cpp(c: _Choice) -> Exported:
    """A layer's experts are one tensor there: whole layers stay on the device, the first ones go to the processor."""
    on_device = c.resident // c.model.num_experts
    command = ["llama-server", "-m", f"{c.model.name}.gguf", "-ngl", "999"]
    notes = [
        f"{on_device} of {c.layers} MoE layers keep their experts on the device: {c.resident:,} experts, rounded down to layers"
    ]
    if on_device == 0:
        command += ["--cpu-moe"]
    elif on_device < c.layers:
        first = _layers_before(c, c.layers - on_device)
        command += ["--n-cpu-moe", str(first)]
        pattern = "|".join(str(layer) for layer in c.model.moe_layer_ids if layer < first)
        notes.append(f"the same by tensor: -ot 'blk\\.({pattern})\\.ffn_.*_exps\\.=CPU'")
    command += ["-c", str(c.context * c.batch), "-np", str(c.batch)]
    command += ["--cache-type-k", _KV["llama.cpp"], "--cache-type-v", _KV["llama.cpp"]]
    if c.home == "host":
        command.append("--no-mmap")
        notes.append("--no-mmap reads all weights into memory: experts live on the host, not in storage")
    notes.append(
        "experts of the first layers are computed on the processor; they are not copied to the device when needed"
    )
    return Exported(
        "llama.cpp", tuple(command), _cannot(c, computes_on_host=True, per_expert=False), tuple(notes)
    )


def _layers_before(c: _Choice, moe_layers: int) -> int:
    """`--n-cpu-moe` counts layers of the model from the first; dense ones among them count too."""
    return c.model.moe_layer_ids[moe_layers - 1] + 1


def _vllm(c: _Choice) -> Exported:
    command = [
        "vllm",
        "serve",
        c.model.name,
        "--max-model-len",
        str(c.context),
        "--max-num-seqs",
        str(c.batch),
    ]
    command += ["--kv-cache-dtype", _KV["vllm"]]
    notes = []
    if c.offloaded_bytes:
        backend = "prefetch" if c.prefetch != "none" else "uva"
        command += ["--offload-backend", backend]
        if backend == "uva":
            command += [
                "--cpu-offload-gb",
                f"{c.offloaded_bytes / 2**30:.2f}",
                "--cpu-offload-params",
                "experts",
            ]
            notes.append(
                "uva reads offloaded experts over the link each time: nothing is cached on the device"
            )
        else:
            away = max(1, round(c.layers * (1 - c.resident / c.everything)))
            command += ["--offload-group-size", str(max(1, c.layers // away)), "--offload-num-in-group", "1"]
            command += ["--offload-prefetch-step", str(_ahead(c.prefetch)), "--offload-params", "experts"]
            notes.append(
                "prefetch brings whole layers ahead, all experts of each: more bytes than a guess of the routed ones"
            )
    command += _quantised(c, notes)
    notes.append("on several devices: --tensor-parallel-size N --enable-expert-parallel")
    return Exported(
        "vllm", tuple(command), _cannot(c, computes_on_host=False, per_expert=False), tuple(notes)
    )


def _sglang(c: _Choice) -> Exported:
    each = c.resident // c.layers
    command = [
        "python",
        "-m",
        "sglang.launch_server",
        "--model-path",
        c.model.name,
        "--context-length",
        str(c.context),
    ]
    command += ["--max-running-requests", str(c.batch), "--kv-cache-dtype", _KV["sglang"]]
    notes = []
    if c.offloaded_bytes:
        command += [
            "--kt-weight-path",
            c.model.name,
            "--kt-method",
            "BF16" if c.weights == "bf16" else c.weights.upper(),
        ]
        command += ["--kt-num-gpu-experts", str(each)]
        if c.policy not in ("static", "never"):
            command.append("--kt-enable-dynamic-expert-update")
            notes.append(
                "placement follows use at each prefill only: the nearest thing to an evicting policy"
            )
        notes.append(
            f"{each} experts of each layer stay on the device ({c.resident:,} in all, rounded down per layer)"
        )
        notes.append("experts not on the device are computed on the host; set --kt-cpuinfer to its cores")
    command += _quantised(c, notes)
    notes.append("on several devices: --tp-size N --ep-size N")
    return Exported(
        "sglang", tuple(command), _cannot(c, computes_on_host=True, per_expert=True), tuple(notes)
    )


def _ahead(prefetch: str) -> int:
    for part in prefetch.split(":")[1:]:
        name, _, value = part.partition("=")
        if name == "ahead":
            return int(value)
    return 1


def _quantised(c: _Choice, notes: list[str]) -> list[str]:
    if c.weights == "bf16":
        return []
    if c.weights == "fp8":
        return ["--quantization", "fp8"]
    notes.append(f"weights in {c.weights}: serve a checkpoint that was quantised so")
    return []


def _cannot(c: _Choice, *, computes_on_host: bool, per_expert: bool) -> tuple[str, ...]:
    found = []
    if c.policy != "static" and 0 < c.resident < c.everything:
        found.append(f"eviction by {c.policy}: experts on the device do not change from token to token")
    if c.prefetch != "none":
        found.append(f"prefetch {c.prefetch}: guessed experts are not fetched one by one")
    if computes_on_host and c.resident < c.everything:
        found.append(
            "load and wait: a missed expert is computed where it lies, so predicted times do not hold"
        )
    if not per_expert and c.resident % c.model.num_experts:
        found.append(f"a capacity of {c.resident:,} experts: only whole layers of {c.model.num_experts}")
    if c.home == "storage":
        found.append("experts in storage behind the host, read past the page cache")
    return tuple(found)
