"""What was run, as named facts with their sources: inputs with hashes, options, costs, the reporting block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .embed import plain
from .scales import UNKNOWN, named_value, ranges, significant

KINDS = ("measured", "datasheet", "assumed")
_UNITS = ("_s", "_ns", "_bytes", "_frac", "_share")
_QUANTITY = {"value", "unit", "kind", "source"}


class Fact(NamedTuple):
    name: str
    value: str
    kind: str = ""
    """measured, datasheet or assumed, where the value is a quantity that says so."""
    source: str = ""


class FactGroup(NamedTuple):
    title: str
    facts: tuple[Fact, ...]


def input_info(run: Mapping[str, Any]) -> tuple[FactGroup, ...]:
    """The trace, the model, the machine and the options. What was not given says so; it is never left blank."""
    groups = [FactGroup("Trace", facts(run.get("trace") or {}) or (Fact("trace", UNKNOWN),))]
    without = {
        "model": ("Model", "none given: no bytes and no times"),
        "hardware": ("Machine", "none given: no times"),
    }
    for name, (title, missing) in without.items():
        found = run.get(name)
        listed = facts(found) if isinstance(found, Mapping) else ()
        groups.append(FactGroup(title, listed or (Fact(name, str(found) if found else missing),)))
    layers = dense_layers(run)
    if layers:
        groups[1] = groups[1]._replace(
            facts=(*groups[1].facts, Fact("layers without routed experts", ranges(layers)))
        )
    options = tuple(
        Fact(_title(name), "not given" if value is None else named_value(name, plain(value)))
        for name, value in (run.get("options") or {}).items()
    )
    groups.append(
        FactGroup("Options", (*options, Fact("workbench version", str(run.get("version", UNKNOWN)))))
    )
    return tuple(groups)


def dense_layers(run: Mapping[str, Any]) -> tuple[int, ...]:
    """Layers of the model that have no routed experts; empty where the run does not say how many there are."""
    trace, model = run.get("trace") or {}, run.get("model") or {}
    ids = trace.get("layer_ids") or (model.get("moe_layer_ids") if isinstance(model, Mapping) else None)
    total = next(
        (
            part[name]
            for part in (trace, model)
            if isinstance(part, Mapping)
            for name in ("model_layers", "num_hidden_layers", "num_layers", "n_layers")
            if isinstance(part.get(name), int)
        ),
        None,
    )
    if not ids or total is None:
        return ()
    return tuple(layer for layer in range(total) if layer not in set(ids))


def cost_info(run: Mapping[str, Any]) -> FactGroup | None:
    """Where the times come from: each number with its kind and its source; None in a run without times."""
    costs = run.get("costs")
    if not costs:
        return None
    listed = tuple(
        _quantity(str(entry.get("name", UNKNOWN)), entry) for entry in costs.get("provenance") or ()
    )
    return FactGroup(str(costs.get("source", UNKNOWN)), listed)


def reporting_info(reporting: Mapping[str, Any]) -> tuple[Fact, ...]:
    """The whole reporting block, in its own order; "unknown" where the trace does not say."""
    return facts(reporting)


def facts(mapping: Mapping[str, Any], prefix: str = "", parent: str = "") -> tuple[Fact, ...]:
    """A nested mapping as a flat list of facts; a value with a unit, a kind and a source is one fact."""
    found: list[Fact] = []
    for key, value in mapping.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and "value" in value and set(value) <= _QUANTITY:
            found.append(_quantity(_title(name), value))
        elif isinstance(value, Mapping):
            found.extend(facts(value, f"{name} · ", str(key)))
        elif _is_quantities(value):
            found.extend(_quantity(f"{_title(name)} · {entry.get('name', index)}", entry)
                         for index, entry in enumerate(value))  # fmt: skip
        elif key == "synthetic" and isinstance(value, bool):
            found.append(Fact("kind", "synthetic (made by a program)" if value else "logged from a model"))
        else:
            found.append(Fact(_title(name), named_value(_unit_name(str(key), parent), plain(value))))
    return tuple(found)


def _unit_name(key: str, parent: str) -> str:
    """Which name says the unit: `decision_cost_s` for its entry `lru`."""
    return parent if parent.endswith(_UNITS) and not key.endswith(_UNITS) else key


def _is_quantities(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and len(value) > 0
        and all(isinstance(entry, Mapping) and "value" in entry for entry in value)
    )


def _quantity(name: str, entry: Mapping[str, Any]) -> Fact:
    value, unit = plain(entry.get("value")), str(entry.get("unit") or "")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        text = _with_prefix(value, unit)
    else:
        text = named_value(name, value)
    return Fact(_title(name), text, str(entry.get("kind") or UNKNOWN), str(entry.get("source") or UNKNOWN))


def _with_prefix(value: float, unit: str) -> str:
    """`3.35 TB/s` for 3.35e12 B/s: the unit stays the source's, large numbers get a decimal prefix."""
    plain_unit = {"bytes_per_s": "B/s", "bytes/s": "B/s", "flops_per_s": "FLOP/s", "bytes": "B"}.get(unit, unit)
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if plain_unit in ("B/s", "B", "FLOP/s") and abs(value) >= factor:
            return f"{significant(value / factor)} {prefix}{plain_unit}"
    if plain_unit == "s" and 0 < abs(value) < 1:
        return named_value("_s", value)
    return f"{significant(value)} {plain_unit}".rstrip()


def _title(name: str) -> str:
    """`tokens_per_pass` → `tokens per pass`; the rest of the spelling is the run's own."""
    pieces = [
        piece.removesuffix("_s").removesuffix("_ns") if not piece.endswith("_per_s") else piece
        for piece in name.split(" · ")
    ]  # the value shows its unit
    return " · ".join(pieces).replace("_", " ")
