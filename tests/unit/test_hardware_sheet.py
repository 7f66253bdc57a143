"""Hardware sheets: every number with unit, kind and source; dense peaks; clear refusals (case B17)."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from codesign.errors import InputFileError, UsageError
from codesign.sim import catalog
from codesign.sim.catalog import hardware_names, load_hardware
from codesign.sim.hardware import KINDS, Quantity, above_peak, read_hardware

SHEET = """
name = "toy"
title = "A toy"
source = "a test"

[memory]
capacity = { value = 8e9, unit = "bytes", kind = "datasheet", source = "a test" }
bandwidth = { value = 1e11, unit = "bytes/s", kind = "datasheet", source = "a test" }
reserved = { value = 0, unit = "bytes", kind = "assumed", source = "a test" }

[peaks]
bf16 = { value = 1e13, unit = "FLOP/s", kind = "datasheet", source = "a test" }

[host_link]
name = "a wire"
bandwidth = { value = 1e10, unit = "bytes/s", kind = "datasheet", source = "a test" }
latency = { value = 1e-5, unit = "s", kind = "assumed", source = "a test" }
copy_engines = { value = 2, unit = "count", kind = "assumed", source = "a test" }

[host_memory]
capacity = { value = 3e10, unit = "bytes", kind = "assumed", source = "a test" }
bandwidth = { value = 5e10, unit = "bytes/s", kind = "assumed", source = "a test" }

[storage]
name = "a drum"
bandwidth = { value = 1e9, unit = "bytes/s", kind = "assumed", source = "a test" }
latency = { value = 1e-3, unit = "s", kind = "assumed", source = "a test" }
"""


def written(tmp_path, text):
    path = tmp_path / "a sheet.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_sheet_is_read_whole(tmp_path):
    toy = load_hardware(written(tmp_path, SHEET))
    assert toy.name == "toy"
    assert toy.usable_bytes == 8_000_000_000
    assert toy.peak("bf16") == Quantity(1e13, "FLOP/s", "datasheet", "a test")
    assert toy.copy_engines.value == 2


def test_the_catalog_has_the_machines_that_were_asked_for_and_each_number_has_unit_kind_and_source():
    wanted = {
        "a100-80gb-sxm", "h100-sxm", "h200-sxm", "b200", "l40s", "rtx-3090", "rtx-4090", "rtx-5090",
        "jetson-agx-orin-64gb", "apple-m3-max", "cpu-2core",
    }  # fmt: skip
    assert wanted <= set(hardware_names())
    for name in hardware_names():
        machine = load_hardware(name)
        assert machine.name == name
        for what, quantity in machine.quantities():
            assert quantity.kind in KINDS, (name, what)
            assert quantity.source.strip(), (name, what)
        document = machine.to_dict()
        json.dumps(document)
        lines = machine.summary_lines()
        for row in document["quantities"]:
            assert any(row["name"] in line and row["kind"] in line and row["source"] in line for line in lines)


def test_this_machines_numbers_are_measured():
    cpu = load_hardware("cpu-2core")
    measured = {name for name, quantity in cpu.quantities() if quantity.kind == "measured"}
    assert {"device memory bandwidth", "peak fp32 (dense)", "host link bandwidth (memory copy)"} <= measured


def test_the_large_cards_16_bit_peak_is_dense_and_8192_cubed_takes_1_112_ms_b17():
    h100 = load_hardware("h100-sxm")
    flops = 2 * 8192**3
    assert flops == pytest.approx(1.0995e12, rel=1e-4)
    assert flops / h100.peak("bf16").value * 1e3 == pytest.approx(1.112, abs=0.001)
    assert h100.peak("fp16").value == pytest.approx(989e12, rel=1e-3)
    assert load_hardware("h100-pcie").peak("bf16").value == 756.5e12
    assert "without sparsity" in h100.peak("bf16").source


def test_a_measurement_above_the_stated_peak_warns_and_one_below_does_not_b17():
    h100 = load_hardware("h100-sxm")
    warning = above_peak(h100, "bf16", 1979e12)
    assert warning is not None
    assert "1.979 PFLOP/s" in warning
    assert "989.4 TFLOP/s" in warning
    assert "h100-sxm" in warning
    assert above_peak(h100, "bf16", 480e12) is None
    assert above_peak(h100, "bf16", 989.5e12) is None  # the two ways to round the same peak
    assert above_peak(h100, "bf16", 1.02 * 989.4e12) is not None


def test_the_share_of_the_peak_is_taken_of_the_dense_one_b17():
    peak = load_hardware("h100-sxm").peak("bf16").value
    assert 9600 * 0.05e12 / peak == pytest.approx(0.485, abs=0.001)
    assert 420e12 / peak == pytest.approx(0.424, abs=0.001)


def test_a_source_that_speaks_of_sparsity_needs_the_name_to_say_so_b17(tmp_path):
    dense = 'source = "a test" }\n\n[host_link]'
    assert dense in SHEET
    sparse = SHEET.replace(dense, dense.replace("a test", "x, with sparsity"))
    with pytest.raises(InputFileError, match=r"field peaks.bf16: .*name it bf16_sparse"):
        read_hardware(written(tmp_path, sparse))
    both = sparse.replace("bf16 = ", "bf16_sparse = ")
    toy = read_hardware(written(tmp_path, both))
    assert ("peak bf16_sparse", toy.peaks[0][1]) in list(toy.quantities())
    with pytest.raises(UsageError, match=r"toy states no peak for bf16 or anything wider; it has bf16_sparse"):
        toy.peak("bf16")  # a sparse peak is never a roof


def test_arithmetic_a_device_lacks_runs_in_the_next_wider_one():
    assert load_hardware("a100-80gb-sxm").peak_name("fp4") == "bf16"
    assert load_hardware("h100-sxm").peak_name("fp4") == "fp8"
    assert load_hardware("b200").peak_name("fp4") == "fp4"
    assert load_hardware("apple-m3-max").peak_name("int8") == "bf16"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('value = 1e11, unit = "bytes/s"', 'value = 1e2, unit = "GB/s"',
         "field memory.bandwidth: unit must be 'bytes/s', got 'GB/s'"),
        ("value = 8e9", "value = 0", "field memory.capacity: value must be above 0, got 0"),
        ("value = 8e9", "value = nan", "field memory.capacity: value must be a finite number, got nan"),
        ("value = 8e9", "value = true", "field memory.capacity: value must be a finite number, got True"),
        ("value = 8e9", 'value = "8e9"', "field memory.capacity: value must be a finite number, got '8e9'"),
        ("value = 1e-5", "value = -1e-5", "field host_link.latency: value must not be negative, got -1e-05"),
        ("value = 2, ", "value = 1.5, ", "field host_link.copy_engines: value must be a whole number from 1 to 64, got 1.5"),
        ('value = 0, unit = "bytes", kind = "assumed"', 'value = 0, unit = "bytes", kind = "guess"',
         "field memory.reserved: kind must be one of measured, datasheet, assumed, got 'guess'"),
        ('source = "a test" }\n\n[peaks]', 'source = "" }\n\n[peaks]', "field memory.reserved.source: must be a text, got ''"),
        ("[storage]", "[storrage]", r"unknown field in .* 'storrage'; did you mean 'storage'"),
        ("capacity = { value = 3e10", "capazity = { value = 3e10", r"'capazity'; did you mean 'capacity'"),
        ("bf16 = ", "bf61 = ", r"unknown arithmetic in \[peaks\] of .* 'bf61'; did you mean 'bf16'"),
        ('name = "toy"', "name = 3", "field name: must be a text, got 3"),
        ('name = "toy"', "name = ", "is not TOML"),
    ],
)  # fmt: skip
def test_a_wrong_sheet_is_refused_with_the_field_and_the_value(tmp_path, old, new, message):
    assert old in SHEET
    path = written(tmp_path, SHEET.replace(old, new, 1))
    with pytest.raises(UsageError, match=message) as caught:
        read_hardware(path)
    assert "a sheet.toml" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("table", ["memory", "peaks", "host_link", "host_memory", "storage"])
def test_a_missing_table_is_named(tmp_path, table):
    parts = SHEET.split("\n\n")
    text = "\n\n".join(part for part in parts if not part.startswith(f"[{table}]"))
    with pytest.raises(InputFileError, match=f"field {table}: is missing or no table"):
        read_hardware(written(tmp_path, text))


def test_an_unknown_machine_names_the_nearest_one_and_a_folder_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"'h100-smx'; did you mean 'h100-sxm'"):
        load_hardware("h100-smx")
    with pytest.raises(UsageError, match="is a directory"):
        load_hardware(tmp_path)
    with pytest.raises(InputFileError, match="no such file"):
        load_hardware(tmp_path / "none.toml")


def test_unified_memory_is_said():
    orin = load_hardware("jetson-agx-orin-64gb")
    assert orin.unified_memory
    assert "host and device share one memory" in orin.summary_lines()
    assert not replace(orin, unified_memory=False).to_dict()["unified_memory"]


def test_the_catalog_is_imported_without_torch_pandas_or_pydantic():
    code = (
        "import sys; import codesign.sim.catalog as c; c.load_model('olmoe-1b-7b'); c.load_hardware('h200-sxm'); "
        "print(sorted({'torch', 'pandas', 'pydantic', 'numba', 'simpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_name_of_the_catalog_is_a_file_beside_it():
    assert catalog.hardware_names() == sorted(catalog.hardware_names())
    assert all(name == name.lower() for name in catalog.hardware_names() + catalog.model_names())
