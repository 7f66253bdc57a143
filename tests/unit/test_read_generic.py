"""Generic JSONL, CSV and Parquet: the same columns, the same trace, the same errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from codesign.errors import InputFileError
from codesign.traces import ExpertTrace, read_trace
from trace_files import csv_text, jsonl_text, rows_of, same_trace, small_trace, write_parquet

Write = Callable[[Path, list[dict[str, Any]]], None]


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    names = list(rows[0])
    lines = [",".join(names)]
    for row in rows:
        cells = (row.get(name) for name in names)
        lines.append(
            ",".join(f'"{json.dumps(cell)}"' if isinstance(cell, list) else str(cell) for cell in cells)
        )
    path.write_text("\n".join(lines) + "\n")


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


WRITERS: dict[str, tuple[Write, str, int]] = {  # what a row is called, and the number of the first one
    "jsonl": (write_jsonl, "line", 1),
    "csv": (write_csv, "line", 2),
    "parquet": (write_table, "row", 1),
}
each_format = pytest.mark.parametrize("name", WRITERS)


def row(token: int = 0, layer: int = 0, ids: Any = (0, 1), **more: Any) -> dict[str, Any]:
    return {"token": token, "layer": layer, "topk_ids": list(ids), **more}


def refused(tmp_path: Path, name: str, rows: list[dict[str, Any]], **options: Any) -> tuple[str, str]:
    """What the error says, and where."""
    path = tmp_path / "trace"
    WRITERS[name][0](path, rows)
    with pytest.raises(InputFileError) as caught:
        read_trace(path, format=name, **options)
    assert caught.value.path == path
    return caught.value.what, caught.value.where or ""


def at(name: str, index: int) -> str:
    _, place, first = WRITERS[name]
    return f"{place} {index + first}"


def test_the_three_formats_give_the_trace_that_was_written(tmp_path: Path) -> None:
    trace = small_trace(layer_ids=(3, 4, 5))
    (tmp_path / "a").write_text(jsonl_text(trace))
    (tmp_path / "b").write_text(csv_text(trace))
    write_parquet(trace, tmp_path / "c")
    for name in "abc":
        same_trace(read_trace(tmp_path / name), trace)


def test_what_vllm_patches_write_is_read_as_the_same(tmp_path: Path) -> None:
    trace = small_trace(is_prefill_T=None, weights_TLK=None, token_ids_T=None)
    lines = []
    for record in rows_of(trace):
        lines.append(
            {
                "type": "route",
                "req_id": f"req-{record['sequence']}",
                "token_idx": record["token"],
                "layer": record["layer"],
                "topk_ids": record["topk_ids"],
            }
        )
    write_jsonl(tmp_path / "t", lines)
    read = read_trace(tmp_path / "t", num_experts=16)
    assert read.model == "unknown"
    same_trace(read, trace, but=("model", "source", "licence", "notes"))


@each_format
def test_rows_in_any_order_give_the_same_trace_and_it_is_said(tmp_path: Path, name: str) -> None:
    rows = rows_of(small_trace())
    shuffled = [rows[i] for i in np.random.default_rng(1).permutation(len(rows))]
    WRITERS[name][0](tmp_path / "a", rows)
    WRITERS[name][0](tmp_path / "b", shuffled)
    straight, sorted_again = read_trace(tmp_path / "a"), read_trace(tmp_path / "b")
    same_trace(straight, sorted_again, but=("source", "notes"))
    assert any("were sorted" in note for note in sorted_again.notes)


@each_format
def test_a_cell_that_is_no_number_is_named_and_never_0(tmp_path: Path, name: str) -> None:
    text = name == "csv"
    for field, value in (
        ("token", "abc"),
        ("token", "1,5" if not text else "1.5"),
        ("token", "" if text else None),
        ("token", -1),
        ("layer", 12.5),
        ("layer", "N/A"),
        ("layer", 2**40),
    ):
        rows: list[dict[str, Any]] = [row(0), row(1)]
        if name == "parquet":  # a column has one type, so the whole column is of the wrong kind
            rows = [row(0) | {field: value if value is not None else 0}, row(1) | {field: value}]
        else:
            rows[1][field] = value
        what, where = refused(tmp_path, name, rows)
        assert "expected a whole number" in what
        assert field in where
        if name != "parquet":
            assert where.startswith(at(name, 1))


@each_format
def test_ids_that_are_no_ids_are_named_with_their_row(tmp_path: Path, name: str) -> None:
    for ids, said in (
        ([0, 16], "16 is not an expert id (0 to 15"),
        ([0, -2], "-2 is not an expert id"),
        ([3, 3], "stands twice"),
        ([1, 2, 3], "3 experts, but"),
        ([1], "1 experts, but"),
    ):
        what, where = refused(tmp_path, name, [row(0), row(1, ids=ids)], num_experts=16)
        assert said in what
        assert where == at(name, 1)


@pytest.mark.parametrize("name", ["jsonl", "csv"])
@pytest.mark.parametrize(
    "ids", ["[1, true]", "[1, 3.5]", "[1, 3.0]", "[1, null]", '[1, "2"]', "[[1, 2]]", "{}", "7", f"[1, {10**400}]"]
)
def test_only_whole_numbers_are_expert_ids(tmp_path: Path, name: str, ids: str) -> None:
    path = tmp_path / "t"
    quoted = ids.replace('"', '""')
    path.write_text(
        f'{{"token": 0, "layer": 0, "topk_ids": [0, 1]}}\n{{"token": 1, "layer": 0, "topk_ids": {ids}}}\n'
        if name == "jsonl"
        else f'token,layer,topk_ids\n0,0,"[0, 1]"\n1,0,"{quoted}"\n'
    )
    with pytest.raises(InputFileError) as caught:
        read_trace(path, num_experts=16)
    assert caught.value.where is not None
    assert caught.value.where.startswith(at(name, 1))


@each_format
def test_weights_must_be_finite_and_as_many_as_the_ids(tmp_path: Path, name: str) -> None:
    nan, infinite = float("nan"), float("inf")
    for weights in ([0.5, nan], [0.5, infinite], [0.5, -infinite], [0.5, 1e308], [0.5]):
        what, where = refused(
            tmp_path, name, [row(0, topk_weights=[0.5, 0.5]), row(1, topk_weights=weights)]
        )
        assert "weight" in what
        assert where.startswith(at(name, 1))


@each_format
def test_the_same_token_and_layer_twice_names_both_places(tmp_path: Path, name: str) -> None:
    what, where = refused(tmp_path, name, [row(0), row(1), row(0, ids=(2, 3))])
    assert "sequence 0, token 0, layer 0" in what
    assert at(name, 0) in what
    assert where == at(name, 2)


@each_format
def test_a_token_without_one_of_the_layers_is_an_error_or_is_skipped_and_counted(
    tmp_path: Path, name: str
) -> None:
    rows = [row(0, 0), row(0, 1), row(1, 0), row(2, 0), row(2, 1)]
    what, where = refused(tmp_path, name, rows)
    assert "token 1 has no row for layer 1" in what
    assert where == at(name, 2)
    trace = read_trace(tmp_path / "trace", format=name, lenient=True)
    assert trace.num_tokens == 2
    assert "1 tokens without a row for every layer were skipped" in trace.notes


def test_rows_with_a_layer_of_their_own_each_do_not_fill_memory(tmp_path: Path) -> None:
    what, _ = refused(tmp_path, "jsonl", [row(i, i) for i in range(20_000)])
    assert "no row for layers" in what


def test_one_wide_row_among_many_does_not_fill_memory(tmp_path: Path) -> None:
    rows = [row(i) for i in range(2000)]
    rows.append(row(5000, ids=range(100_000)))
    write_jsonl(tmp_path / "trace", rows)
    with pytest.raises(InputFileError, match=r"line 2001: .*top_k would be 100000"):
        read_trace(tmp_path / "trace", lenient=True)


@each_format
def test_what_differs_between_the_layers_of_one_token_is_an_error(tmp_path: Path, name: str) -> None:
    for field, one, other in (("phase", "prefill", "decode"), ("token_id", 5, 6), ("step", 0, 1)):
        what, where = refused(tmp_path, name, [row(0, 0, **{field: one}), row(0, 1, **{field: other})])
        assert f"{field} differs" in what
        assert where == at(name, 1)


def test_layer_numbers_beyond_the_stated_count_are_an_error(tmp_path: Path) -> None:
    meta = {"type": "meta", "num_experts": 16, "num_layers": 3}
    what, where = refused(tmp_path, "jsonl", [meta, row(0, 1), row(0, 3)])
    assert "layer 3, but num_layers is 3" in what
    assert where == "line 3"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_experts", 0),
        ("num_experts", 1 << 40),
        ("num_experts", True),
        ("top_k", "8"),
        ("num_layers", 10**12),
        ("model", 5),
        ("synthetic", "yes"),
        ("notes", "text"),
    ],
)
def test_a_meta_line_must_make_sense(tmp_path: Path, field: str, value: Any) -> None:
    _, where = refused(tmp_path, "jsonl", [{"type": "meta", field: value}, row(0)])
    assert where == f"line 1, field '{field}'"


def test_lenient_skips_unreadable_rows_and_counts_them(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(
        'token,layer,topk_ids\n0,0,"[0, 1]"\nabc,0,"[0, 1]"\n"1,5",0,"[0, 1]"\n,0,"[0, 1]"\n3,0\n4,0,"[0; 1.5]"\n'
    )
    with pytest.raises(InputFileError, match=r"line 3, column 'token': .*'abc'"):
        read_trace(path)
    trace = read_trace(path, lenient=True)
    assert trace.num_tokens == 1
    assert any("5 unreadable rows skipped (line 3, 4, 5, 6, 7)" in note for note in trace.notes)


def test_a_broken_json_line_is_named_with_its_column(tmp_path: Path) -> None:
    path = tmp_path / "t"
    good = json.dumps(row(0))
    for bad, said in (
        (good[:-5], "line 2, column"),
        ('{"token": 1, "layer": 0, "topk_ids": [0, 1],}', "line 2, column"),
        (good + good, "line 2, column"),
        (f"{good},{good}", "line 2, column"),
        ("[1, 2]", "line 2: expected an object"),
        ("\x00", "line 2, column 1"),
        ("[" * 100_000, "line 2"),
        ("1" * 5000, "line 2"),
    ):
        path.write_text(f"{good}\n{bad}\n")
        with pytest.raises(InputFileError) as caught:
            read_trace(path)
        assert said in str(caught.value), bad[:50]
    path.write_bytes(good.encode() + b'\n{"token": "\xff"}\n')
    with pytest.raises(InputFileError, match="line 2: not UTF-8"):
        read_trace(path)


def test_lines_that_only_together_are_json_are_refused(tmp_path: Path) -> None:
    """Three lines that joined by commas would be three records: one line holds two, two lines share one."""
    path = tmp_path / "t"
    one, two = json.dumps(row(0)), json.dumps(row(1))
    path.write_text(f'{one},{two}\n{{"token": 2, "layer": 0, "topk_ids": [0\n1]}}\n')
    with pytest.raises(InputFileError, match="line 1, column"):
        read_trace(path, format="jsonl")


def test_a_field_that_begins_later_in_the_file_is_not_lost(tmp_path: Path) -> None:
    """Records are read in blocks; the first block does not decide what the others may say."""
    many = 40_000
    rows = [row(i) for i in range(many)] + [row(many, phase="decode", token_id=7)]
    write_jsonl(tmp_path / "t", rows)
    notes = read_trace(tmp_path / "t").notes
    assert any("only some rows give token_id" in note for note in notes)
    assert any(f"{many} tokens do not say their phase" in note for note in notes)
    rows[-1] = row(0, sequence=3)
    write_jsonl(tmp_path / "t", rows)
    with pytest.raises(InputFileError, match=f"line {many + 1}, field 'sequence'"):
        read_trace(tmp_path / "t")
    rows = [row(i, sequence=0) for i in range(many)] + [row(0)]
    write_jsonl(tmp_path / "t", rows)
    with pytest.raises(InputFileError, match=f"line {many + 1}, field 'sequence': is missing"):
        read_trace(tmp_path / "t")


def test_ids_in_a_cell_may_be_spaced_but_a_decimal_comma_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text('token,layer,topk_ids\n0,0,3 1\n1,0,3;1\n2,0,"[3, 1]"\n')
    assert read_trace(path).experts_TLK[:, 0].tolist() == [[3, 1]] * 3
    path.write_text('token,layer,topk_ids\n0,0,"3,1"\n')
    with pytest.raises(InputFileError, match="line 2, column 'topk_ids'"):
        read_trace(path)


def test_names_that_look_like_numbers_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text("sequence,token,layer,topk_ids\n7,0,0,3 1\n007,0,0,2 1\n")
    assert read_trace(path).num_sequences == 2


def test_sequences_are_ordered_by_number_or_by_first_appearance(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "t", [row(0, sequence=10, ids=(1, 2)), row(0, sequence=9, ids=(3, 4))])
    assert read_trace(tmp_path / "t").experts_TLK[:, 0, 0].tolist() == [3, 1]
    write_jsonl(tmp_path / "t", [row(0, sequence="b", ids=(1, 2)), row(0, sequence="a", ids=(3, 4))])
    assert read_trace(tmp_path / "t").experts_TLK[:, 0, 0].tolist() == [1, 3]


def test_a_header_that_lacks_or_repeats_a_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text("token,topk_ids\n0,1 2\n")
    with pytest.raises(InputFileError, match="line 1: the header lacks layer"):
        read_trace(path, format="csv")
    path.write_text("token,layer,layer,topk_ids\n0,0,0,1 2\n")
    with pytest.raises(InputFileError, match="names a column twice"):
        read_trace(path)
    pq.write_table(pa.table({"token": [0], "layer": [0]}), path)
    with pytest.raises(InputFileError, match="columns: lacks topk_ids"):
        read_trace(path)


def test_parquet_of_other_integer_and_list_types_is_the_same(tmp_path: Path) -> None:
    trace = small_trace()
    rows = pa.Table.from_pylist(rows_of(trace))
    narrow = rows.set_column(
        rows.schema.get_field_index("topk_ids"),
        "topk_ids",
        rows["topk_ids"].combine_chunks().cast(pa.list_(pa.uint8(), 2)),
    ).set_column(0, "sequence", rows["sequence"].cast(pa.uint32()).combine_chunks().dictionary_encode())
    pq.write_table(narrow, tmp_path / "t")
    read = read_trace(tmp_path / "t", num_experts=16)
    same_trace(read, trace, but=("model", "source", "licence", "notes"))


def test_parquet_that_claims_a_million_times_its_size_is_refused(tmp_path: Path) -> None:
    count = 60_000_000
    ids = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(count, np.int8)), 1)
    same = pa.array(np.zeros(count, np.int8))
    pq.write_table(pa.table({"token": same, "layer": same, "topk_ids": ids}), tmp_path / "t")
    assert (tmp_path / "t").stat().st_size < 1_000_000
    with pytest.raises(InputFileError, match="claim to hold"):
        read_trace(tmp_path / "t")


def test_a_note_says_when_the_number_of_experts_is_a_guess(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "t", [row(0, ids=(0, 5))])
    guessed, told = read_trace(tmp_path / "t"), read_trace(tmp_path / "t", num_experts=64)
    assert (guessed.num_experts, told.num_experts) == (6, 64)
    assert any("largest id + 1" in note for note in guessed.notes)
    assert told.notes == ()


def test_types_of_the_result_are_those_the_simulator_expects(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(jsonl_text(small_trace()))
    trace: ExpertTrace = read_trace(tmp_path / "t")
    assert trace.experts_TLK.dtype == np.int8
    assert trace.layer_ids_L.dtype == np.int32
    assert trace.sequence_start_S.dtype == np.int64
    assert trace.weights_TLK is not None
    assert trace.weights_TLK.dtype == np.float32
