"""A machine as the simulator sees it: a device, its memory, the link to the host, the host, storage.

Every number is a `Quantity`: value, unit, whether it was *measured*, stands on a *datasheet*, or is *assumed*, and by
whom. Peaks are dense; a sparse peak must have "sparse" in its name and is never used as a roof (case B17).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from ..errors import InputFileError, UsageError, unknown_name
from ..files import read_toml

Kind = Literal["measured", "datasheet", "assumed"]
KINDS: tuple[Kind, ...] = ("measured", "datasheet", "assumed")

_FIELDS: Mapping[str, Mapping[str, str]] = {
    "memory": {"capacity": "bytes", "bandwidth": "bytes/s", "reserved": "bytes"},
    "host_link": {"bandwidth": "bytes/s", "latency": "s", "copy_engines": "count"},
    "host_memory": {"capacity": "bytes", "bandwidth": "bytes/s"},
    "storage": {"bandwidth": "bytes/s", "latency": "s"},
}
"""Table → field → the unit it must have. Every one is needed."""

_DEVICE_LINK: Mapping[str, str] = {"bandwidth": "bytes/s", "latency": "s", "devices": "count"}
"""Fields of the one table that may be absent: how devices of this kind reach one another."""

_HOST_CORES: Mapping[str, str] = {"compute": "FLOP/s"}
"""The other one that may be absent: all cores of the host together, dense, for what is computed there."""

_MAY_BE_ZERO = {"reserved", "latency"}
_SLACK = 1.01
"""A measurement may exceed a stated peak by 1 %: data sheets round, clocks boost a little."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number of a machine. `kind` says how it is known, `source` by whom."""

    value: float
    unit: str
    kind: Kind
    source: str

    def text(self) -> str:
        """With a readable unit: 989.4 TFLOP/s, 3.35 TB/s, 80.00 GiB."""
        return readable(self.value, self.unit)


@dataclass(frozen=True, slots=True)
class DeviceLink:
    """How devices reach one another: bytes/s that one sends, the start of a message, how many devices are joined so."""

    name: str
    bandwidth: Quantity
    latency: Quantity
    devices: Quantity


@dataclass(frozen=True, slots=True)
class HardwareSpec:
    """One device and what feeds it. Peaks in FLOP/s (or operations/s) per arithmetic type, dense."""

    name: str
    title: str
    source: str
    unified_memory: bool
    """Host and device share one memory: a copy to "the device" is a copy within it."""
    memory_capacity: Quantity
    memory_bandwidth: Quantity
    memory_reserved: Quantity
    """What driver and runtime keep for themselves."""
    peaks: tuple[tuple[str, Quantity], ...]
    host_link: str
    link_bandwidth: Quantity
    link_latency: Quantity
    copy_engines: Quantity
    """Copies host to device that run at once, each at the full link bandwidth."""
    host_memory_capacity: Quantity
    host_memory_bandwidth: Quantity
    storage: str
    storage_bandwidth: Quantity
    storage_latency: Quantity
    notes: tuple[str, ...] = ()
    device_link: DeviceLink | None = None
    """None: the sheet does not say, and several devices cannot be priced."""
    host_compute: Quantity | None = None
    """FLOP/s of the host's cores together; None: the sheet does not say, and nothing can be computed there."""

    def peak(self, arithmetic: str) -> Quantity:
        """The dense roof for an arithmetic type; the next wider one where the device has no such units.

        A device without fp8 units computes fp8 weights in bf16, one without fp4 in fp8, one without bf16 in fp16, and
        so on. Raises `UsageError` where nothing wide enough is stated.
        """
        return self.peaks_by_name[self.peak_name(arithmetic)]

    def peak_name(self, arithmetic: str) -> str:
        """Which peak `peak` takes."""
        have = self.peaks_by_name
        for name in _WIDER.get(arithmetic, (arithmetic,)):
            if name in have:
                return name
        raise UsageError(
            f"hardware {self.name} states no peak for {arithmetic} or anything wider; it has {', '.join(have)}"
        )

    @property
    def peaks_by_name(self) -> dict[str, Quantity]:
        return dict(self.peaks)

    @property
    def usable_bytes(self) -> int:
        """Device memory that weights and caches may fill."""
        return int(self.memory_capacity.value - self.memory_reserved.value)

    def quantities(self) -> Iterator[tuple[str, Quantity]]:
        """Every number, in the order people read a sheet."""
        yield "device memory", self.memory_capacity
        yield "reserved by driver and runtime", self.memory_reserved
        yield "device memory bandwidth", self.memory_bandwidth
        for name, peak in self.peaks:
            yield f"peak {name} (dense)" if "sparse" not in name else f"peak {name}", peak
        yield f"host link bandwidth ({self.host_link})", self.link_bandwidth
        yield "host link latency", self.link_latency
        yield "copy engines to the device", self.copy_engines
        yield "host memory", self.host_memory_capacity
        yield "host memory bandwidth", self.host_memory_bandwidth
        yield f"storage bandwidth ({self.storage})", self.storage_bandwidth
        yield "storage latency", self.storage_latency
        if self.host_compute is not None:
            yield "host cores", self.host_compute
        if self.device_link is not None:
            yield f"device link bandwidth ({self.device_link.name})", self.device_link.bandwidth
            yield "device link latency", self.device_link.latency
            yield "devices joined by it", self.device_link.devices

    def to_dict(self) -> dict[str, object]:
        """What `workbench hardware show --json` prints."""
        return {
            "name": self.name,
            "title": self.title,
            "source": self.source,
            "unified_memory": self.unified_memory,
            "quantities": [
                {"name": name, "value": q.value, "unit": q.unit, "kind": q.kind, "source": q.source}
                for name, q in self.quantities()
            ],
            "notes": list(self.notes),
        }

    def summary_lines(self) -> list[str]:
        """What `workbench hardware show` prints: every number with unit, kind and source."""
        lines = [f"{self.name}: {self.title}", f"source: {self.source}"]
        if self.unified_memory:
            lines.append("host and device share one memory")
        for name, quantity in self.quantities():
            lines.append(f"  {name:<42} {quantity.text():>16}  {quantity.kind:<9} {quantity.source}")
        return lines + [f"  note: {note}" for note in self.notes]


_WIDER: Mapping[str, tuple[str, ...]] = {
    "fp4": ("fp4", "fp8", "bf16", "fp16", "fp32"),
    "fp8": ("fp8", "bf16", "fp16", "fp32"),
    "int8": ("int8", "bf16", "fp16", "fp32"),
    "bf16": ("bf16", "fp16", "fp32"),
    "fp16": ("fp16", "bf16", "fp32"),
    "tf32": ("tf32", "fp32"),
    "fp32": ("fp32",),
}
"""Arithmetic → what may stand in for it, best first."""


def above_peak(hardware: HardwareSpec, arithmetic: str, measured_flops_per_s: float) -> str | None:
    """A warning when a measurement beats the stated dense roof by more than 1 %, else None (case B17).

    Then the sheet, the count of operations or the timer is wrong; twice the roof often means a count with sparsity.
    """
    name = hardware.peak_name(arithmetic)
    peak = hardware.peak(arithmetic)
    if measured_flops_per_s <= peak.value * _SLACK:
        return None
    measured = readable(measured_flops_per_s, peak.unit)
    return (
        f"measured {measured} in {arithmetic} is above the dense peak of {hardware.name}, "
        f"{peak.text()} ({name}, {peak.kind}: {peak.source}); check the timer, the count of operations and the sheet"
    )


def read_hardware(path: str | Path) -> HardwareSpec:
    """The machine of a TOML sheet. Raises `UsageError` naming file and field."""
    where, sheet = Path(path), read_toml(path)
    _refuse_unknown(where, sheet)
    number = {(table, field): _quantity(where, sheet, table, field, unit) for table, field, unit in _wanted()}
    return HardwareSpec(
        name=_text(where, sheet, "name"),
        title=_text(where, sheet, "title"),
        source=_text(where, sheet, "source"),
        unified_memory=_flag(where, sheet, "unified_memory"),
        memory_capacity=number["memory", "capacity"],
        memory_bandwidth=number["memory", "bandwidth"],
        memory_reserved=number["memory", "reserved"],
        peaks=_peaks(where, sheet),
        host_link=_text(where, _table(where, sheet, "host_link"), "name", "host_link."),
        link_bandwidth=number["host_link", "bandwidth"],
        link_latency=number["host_link", "latency"],
        copy_engines=_whole(where, number["host_link", "copy_engines"]),
        host_memory_capacity=number["host_memory", "capacity"],
        host_memory_bandwidth=number["host_memory", "bandwidth"],
        storage=_text(where, _table(where, sheet, "storage"), "name", "storage."),
        storage_bandwidth=number["storage", "bandwidth"],
        storage_latency=number["storage", "latency"],
        notes=_notes(where, sheet),
        device_link=_device_link(where, sheet),
        host_compute=_quantity(where, sheet, "host_cores", "compute", "FLOP/s") if "host_cores" in sheet else None,
    )


def _device_link(where: Path, sheet: Mapping[str, object]) -> DeviceLink | None:
    if "device_link" not in sheet:
        return None
    name = _text(where, _table(where, sheet, "device_link"), "name", "device_link.")
    number = {field: _quantity(where, sheet, "device_link", field, unit) for field, unit in _DEVICE_LINK.items()}
    return DeviceLink(name, number["bandwidth"], number["latency"], number["devices"])


def _wanted() -> Iterator[tuple[str, str, str]]:
    for table, fields in _FIELDS.items():
        for field, unit in fields.items():
            yield table, field, unit


def _refuse_unknown(where: Path, sheet: Mapping[str, object]) -> None:
    optional = {"device_link": _DEVICE_LINK, "host_cores": _HOST_CORES}
    tables = {**_FIELDS, **{name: fields for name, fields in optional.items() if name in sheet}}
    known = {"name", "title", "source", "unified_memory", "notes", "peaks", *optional, *_FIELDS}
    for key in sheet:
        if key not in known:
            raise unknown_name(f"field in {where}", key, known)
    for table, fields in tables.items():
        named = {"name"} if table in ("host_link", "storage", "device_link") else set()
        for key in _table(where, sheet, table):
            if key not in {*fields, *named}:
                raise unknown_name(f"field of [{table}] in {where}", key, {*fields, *named})


def _table(where: Path, sheet: Mapping[str, object], name: str) -> Mapping[str, object]:
    table = sheet.get(name)
    if not isinstance(table, dict):
        raise InputFileError(where, "is missing or no table", f"field {name}")
    return cast("dict[str, object]", table)


def _text(where: Path, table: Mapping[str, object], field: str, prefix: str = "") -> str:
    value = table.get(field)
    if not isinstance(value, str) or not value.strip():
        raise InputFileError(where, f"must be a text, got {value!r}", f"field {prefix}{field}")
    return value


def _flag(where: Path, sheet: Mapping[str, object], field: str) -> bool:
    value = sheet.get(field, False)
    if not isinstance(value, bool):
        raise InputFileError(where, f"must be true or false, got {value!r}", f"field {field}")
    return value


def _notes(where: Path, sheet: Mapping[str, object]) -> tuple[str, ...]:
    notes = sheet.get("notes", [])
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise InputFileError(where, "must be a list of texts", "field notes")
    return tuple(notes)


def _quantity(where: Path, sheet: Mapping[str, object], table: str, field: str, unit: str) -> Quantity:
    entry = _table(where, sheet, table).get(field)
    return _read_quantity(where, entry, f"{table}.{field}", unit, field in _MAY_BE_ZERO)


def _read_quantity(where: Path, entry: object, place: str, unit: str, may_be_zero: bool = False) -> Quantity:
    at = f"field {place}"
    if not isinstance(entry, dict):
        raise InputFileError(where, 'is missing; write { value = …, unit = "…", kind = "…", source = "…" }', at)
    for key in entry:
        if key not in ("value", "unit", "kind", "source"):
            raise unknown_name(f"field of {place} in {where}", str(key), ("value", "unit", "kind", "source"))
    value, kind = entry.get("value"), entry.get("kind")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputFileError(where, f"value must be a finite number, got {value!r}", at)
    if value < 0 and may_be_zero:
        raise InputFileError(where, f"value must not be negative, got {value!r}", at)
    if value <= 0 and not may_be_zero:
        raise InputFileError(where, f"value must be above 0, got {value!r}", at)
    if entry.get("unit") != unit:
        raise InputFileError(where, f"unit must be {unit!r}, got {entry.get('unit')!r}", at)
    if kind not in KINDS:
        raise InputFileError(where, f"kind must be one of {', '.join(KINDS)}, got {kind!r}", at)
    return Quantity(float(value), unit, cast("Kind", kind), _text(where, entry, "source", f"{place}."))


def _whole(where: Path, quantity: Quantity) -> Quantity:
    if quantity.value != int(quantity.value) or not 1 <= quantity.value <= 64:
        what = f"value must be a whole number from 1 to 64, got {quantity.value}"
        raise InputFileError(where, what, "field host_link.copy_engines")
    return quantity


def _peaks(where: Path, sheet: Mapping[str, object]) -> tuple[tuple[str, Quantity], ...]:
    table = _table(where, sheet, "peaks")
    if not table:
        raise InputFileError(where, "states no peak", "field peaks")
    for name in table:
        if name.removesuffix("_sparse") not in _WIDER:
            raise unknown_name(f"arithmetic in [peaks] of {where}", name, _WIDER)
    peaks = tuple((name, _read_quantity(where, entry, f"peaks.{name}", "FLOP/s")) for name, entry in table.items())
    for name, quantity in peaks:
        said = quantity.source.lower()
        if "sparsity" in said and "without sparsity" not in said and not name.endswith("_sparse"):
            what = f"its source speaks of sparsity: name it {name}_sparse, or say “without sparsity” where it is dense"
            raise InputFileError(where, what, f"field peaks.{name}")
    return peaks


def readable(value: float, unit: str) -> str:
    """A number with a unit that people read. GB is 10⁹ bytes, GiB is 2³⁰."""
    if unit == "bytes":
        return f"{value / 2**30:.2f} GiB"
    if unit == "s":
        return f"{value * 1e6:.4g} µs"
    if unit == "count":
        return f"{value:.0f}"
    for scale, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= scale:
            return f"{value / scale:.4g} {letter}{'B/s' if unit == 'bytes/s' else unit}"
    return f"{value:.4g} {unit}"
