"""What a sweep's inputs are: traces, models, machines and profiles, each number with its source where it has one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import WorkbenchError
from .sweep_inputs import Inputs, TraceFile, named_input


def described(inputs: Inputs) -> dict[str, dict[str, Any]]:
    """An input's name, as among the hashes ("hardware:h200-sxm") → its facts. What cannot be read is left out.

    Scenarios of an input that cannot be read have failed with the reason.
    """
    found = {}
    for name in sorted(inputs.digests):
        kind, _, which = name.partition(":")
        try:
            found[name] = _named(kind, named_input(which, inputs.folder))
        except (WorkbenchError, OSError):
            continue
    for name, trace in sorted(inputs.traces.items()):
        found[f"trace:{name}"] = _of_trace(trace)
    return found


def _named(kind: str, name: str) -> dict[str, Any]:
    from ..sim.catalog import load_hardware, load_model

    if kind == "model":
        return load_model(name).to_dict()
    return dict(load_hardware(name).to_dict()) if kind == "hardware" else _of_profile(name)


def _of_profile(name: str) -> dict[str, Any]:
    from .profiles import load_named_profile, profile_facts

    facts: Mapping[str, Any] = profile_facts(load_named_profile(name))
    return {
        "system": facts["system"],
        "environment": facts["environment"],
        "measured": [
            {
                "name": one["operation"], "value": one["rows"], "unit": f"points, {one['law']}", "kind": "measured",
                "source": ", ".join(filter(None, (one["source"], one["licence"]))) or None,
            }
            for one in facts["operations"]
        ],
    }  # fmt: skip


def _of_trace(trace: TraceFile) -> dict[str, Any]:
    from ..traces import read_trace

    found = read_trace(trace.path, format=trace.format)
    return {
        "model": found.model, "source": found.source, "licence": found.licence, "synthetic": found.synthetic,
        "tokens": found.num_tokens, "layers": found.num_layers, "num_experts": found.num_experts, "top_k": found.top_k,
        "sequences": found.num_sequences,
    }  # fmt: skip
