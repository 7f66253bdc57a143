"""The tables: every number is its row's in the column's unit, a dash of nothing where it is unknown, the best marked."""

from __future__ import annotations

import pytest
from codesign.reports.rows import plain_rows
from codesign.reports.scales import UNKNOWN
from codesign.reports.table import counts_info, table_info
from report_runs import ODD_NAME, made_result

_FACTOR = {
    "": 1,
    "%": 100,
    "ns": 1e9,
    "µs": 1e6,
    "ms": 1e3,
    "s": 1,
    "B": 1,
    "kB": 1e-3,
    "MB": 1e-6,
    "GB": 1e-9,
    "TB": 1e-12,
}


def rows_of(**options):
    return plain_rows(made_result(timeline=False, **options).rows)


def lines_of(info):
    for group in info.groups:
        for line in group.rows:
            yield group.capacity_label, line


@pytest.mark.parametrize("gather", [table_info, counts_info])
def test_every_number_is_its_rows_number_in_the_unit_of_its_column(gather):
    rows = rows_of(prefetchers=("none", "gate"))
    by_name = {(row["capacity_label"], row["policy"], row["prefetch"]): row for row in rows}
    info, seen = gather(rows), 0
    for label, line in lines_of(info):
        row = by_name.pop((label, line.policy, line.prefetch))
        assert line.is_bound == row["is_bound"]
        for column, cell in zip(info.columns, line.cells, strict=True):
            if column.is_number:
                expected = row[column.key] * _FACTOR[column.unit]
                half_a_step = 0.5000001 * 10.0 ** -len(cell.text.partition(".")[2])
                assert float(cell.text.replace(",", "")) == pytest.approx(expected, rel=0, abs=half_a_step), (
                    column
                )
                assert (float(cell.text.replace(",", "")) == 0) == (expected == 0), column
                seen += 1
    assert not by_name
    assert seen > 200


def test_a_column_unknown_in_every_row_is_absent():
    columns = {column.key for column in table_info(rows_of(times=False)).columns}
    assert not columns & {"tpot_s", "ttft_s"}
    assert {"hit_rate", "misses", "bytes_moved"} <= columns
    assert {"tpot_s", "ttft_s"} <= {column.key for column in table_info(rows_of()).columns}


def test_a_number_unknown_in_one_row_says_unknown_there_and_is_never_the_best():
    rows = rows_of(capacities=(("5%", 51),))
    for row in rows:
        if row["policy"] == "lru":
            del row["tpot_s"]
    info = table_info(rows)
    at = [column.key for column in info.columns].index("tpot_s")
    cells = {line.policy: line.cells[at] for _, line in lines_of(info)}
    assert cells["lru"].text == UNKNOWN
    assert not cells["lru"].is_best
    assert not cells["lru"].is_number
    assert cells["fifo"].is_number


def test_the_best_of_each_capacity_is_the_best_policy_and_never_a_bound():
    rows = rows_of()
    info = table_info(rows)
    for key, best in (("hit_rate", max), ("tpot_s", min), ("misses", min), ("bytes_moved", min)):
        at = [column.key for column in info.columns].index(key)
        for group in info.groups:
            own = {row["policy"]: row for row in rows if row["capacity_label"] == group.capacity_label}
            marked = {line.policy for line in group.rows if line.cells[at].is_best}
            target = best(row[key] for row in own.values() if not row["is_bound"])
            assert marked == {name for name, row in own.items() if not row["is_bound"] and row[key] == target}


def test_with_one_policy_nothing_is_best():
    assert not any(
        cell.is_best for _, line in lines_of(table_info(rows_of(policies=("lru",)))) for cell in line.cells
    )


def test_groups_ascend_in_capacity_and_say_how_much_that_is():
    info = table_info(rows_of()[::-1])
    assert [group.capacity_label for group in info.groups] == ["5%", "10%", "25%", "50%"]
    assert [group.size.split(",")[0] for group in info.groups] == [
        "51 experts", "102 experts", "256 experts", "512 experts",
    ]  # fmt: skip
    rows = rows_of()
    for row in rows:
        del row["capacity_experts"], row["capacity_bytes"]
    assert {group.size for group in table_info(rows).groups} == {"size unknown"}


def test_a_column_that_nobody_has_heard_of_is_shown_with_the_counts_and_only_there():
    rows = rows_of(capacities=(("5%", 51),))
    for number, row in enumerate(rows):
        row["new_measure_bytes"] = number * 1000
    assert "new_measure_bytes" not in {column.key for column in table_info(rows).columns}
    info = counts_info(rows)
    assert info.columns[-1].key == "new_measure_bytes"
    shown = {line.policy: line.cells[-1].text for _, line in lines_of(info)}
    assert len(set(shown.values())) == len(rows)
    del rows[0]["new_measure_bytes"]
    shown = {line.policy: line.cells[-1].text for _, line in lines_of(counts_info(rows))}
    assert shown[rows[0]["policy"]] == UNKNOWN


def test_no_column_of_a_row_is_lost_between_the_two_tables():
    rows = rows_of()
    shown = {column.key for info in (table_info(rows), counts_info(rows)) for column in info.columns}
    named_beside = {"policy", "prefetch", "capacity_label", "capacity_experts", "capacity_bytes", "is_bound"}
    assert set(rows[0]) - named_beside == shown


def test_an_odd_name_stays_whole_in_the_table_for_the_page_to_escape():
    names = {line.policy for _, line in lines_of(table_info(rows_of(policies=("lru", ODD_NAME))))}
    assert ODD_NAME in names
