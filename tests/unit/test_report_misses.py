"""Misses by kind and by layer: the bars and the cells are the rows' numbers, and add up as they do."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from codesign.reports.layers import draw_layers, layer_info
from codesign.reports.misses import draw_misses, miss_info
from codesign.reports.palette import MISS_KINDS
from codesign.reports.rows import capacity_choices, contender, plain_rows
from report_runs import ODD_NAME, made_result

PREFETCHERS = ("none", "gate:ahead=2")


@pytest.fixture
def result():
    return made_result(prefetchers=PREFETCHERS, timeline=False)


def test_each_bar_holds_its_rows_misses_by_kind_and_they_add_up(result):
    rows = plain_rows(result.rows)
    infos = miss_info(rows)
    assert [info.capacity_label for info in infos] == ["5%", "10%", "25%", "50%"]
    for info in infos:
        own = {contender(row): row for row in rows if row["capacity_label"] == info.capacity_label}
        assert {bar.name for bar in info.bars} == set(own)
        for bar in info.bars:
            row = own[bar.name]
            assert bar.kinds == {kind: row[kind] for kind in MISS_KINDS}
            assert sum(bar.kinds.values()) == row["misses"]
            assert (bar.accesses, bar.is_bound) == (row["accesses"], row["is_bound"])


def test_a_kind_that_a_run_cannot_know_is_absent_and_not_0(result):
    result.rows["late"] = math.nan
    for info in miss_info(plain_rows(result.rows)):
        assert all("late" not in bar.kinds for bar in info.bars)
        assert "late" not in {trace.name for trace in draw_misses(info).data}


def test_a_row_without_accesses_has_no_bar(result):
    result.rows.loc[result.rows["policy"] == "lru", "accesses"] = 0
    for info in miss_info(plain_rows(result.rows)):
        assert not [bar for bar in info.bars if bar.name.startswith("lru")]


def test_stacked_bars_are_as_long_as_the_miss_rate(result):
    rows = plain_rows(result.rows)
    info = miss_info(rows)[0]
    lengths = [0.0] * len(info.bars)
    for trace in draw_misses(info).data:
        for place, length in zip(trace.y, trace.x, strict=True):
            lengths[place] += length
    rate = {contender(row): 100 * (1 - row["hit_rate"]) for row in rows if row["capacity_label"] == "5%"}
    assert lengths == pytest.approx([rate[bar.name] for bar in info.bars])


def test_each_cell_of_the_heat_map_is_its_layers_misses_over_its_accesses(result):
    rows, layers = plain_rows(result.rows), plain_rows(result.layers)
    infos = layer_info(layers, rows)
    assert len(infos) == 4
    seen = 0
    for info in infos:
        for row, name in enumerate(info.names):
            for column, layer in enumerate(info.layer_ids):
                (cell,) = (
                    one
                    for one in layers
                    if (one["capacity_label"], contender(one), one["layer"])
                    == (info.capacity_label, name, layer)
                )
                assert info.rate(row, column) == cell["misses"] / cell["accesses"]
                assert (info.accesses[row][column], info.misses[row][column]) == (
                    cell["accesses"],
                    cell["misses"],
                )
                seen += 1
    assert seen == len(layers)


def test_cells_of_a_row_add_up_to_the_row_of_the_table(result):
    rows = plain_rows(result.rows)
    for info in layer_info(plain_rows(result.layers), rows):
        for name, misses in zip(info.names, info.misses, strict=True):
            (row,) = (r for r in rows if (r["capacity_label"], contender(r)) == (info.capacity_label, name))
            assert sum(misses) == row["misses"]


def test_layers_keep_the_models_own_numbers_and_dense_ones_are_absent():
    result = made_result(layer_ids=(3, 5, 46), timeline=False)
    info = layer_info(plain_rows(result.layers), plain_rows(result.rows))[0]
    assert info.layer_ids == (3, 5, 46)
    assert list(draw_layers(info).data[0].x) == ["3", "5", "46"]


def test_a_cell_nobody_recorded_is_unknown_and_blank_and_not_a_rate_of_0(result):
    layers = result.layers
    gone = (layers["layer"] == 2) & (layers["policy"] == "lru")
    info = layer_info(plain_rows(layers[~gone]), plain_rows(result.rows))[0]
    place = info.names.index("lru"), info.layer_ids.index(2)
    assert info.rate(*place) is None
    assert draw_layers(info).data[0].z[place[0]][place[1]] is None
    assert "no access" in draw_layers(info).data[0].hovertext[place[0]][place[1]]


def test_a_layer_without_accesses_has_no_miss_rate(result):
    result.layers.loc[result.layers["layer"] == 2, ["accesses", "hits", "misses"]] = 0
    info = layer_info(plain_rows(result.layers), plain_rows(result.rows))[0]
    assert {info.rate(row, info.layer_ids.index(2)) for row in range(len(info.names))} == {None}


def test_all_heat_maps_of_a_page_share_the_highest_rate_as_their_top(result):
    infos = layer_info(plain_rows(result.layers), plain_rows(result.rows))
    assert {info.top for info in infos} == {(result.layers["misses"] / result.layers["accesses"]).max()}


def test_without_layers_there_is_no_heat_map_and_without_rows_no_bar(result):
    assert layer_info([], plain_rows(result.rows)) == ()
    assert miss_info([]) == ()
    assert plain_rows(pd.DataFrame()) == []


def test_odd_names_are_escaped_where_they_are_drawn_and_whole_where_they_are_gathered():
    result = made_result(policies=("lru", ODD_NAME), timeline=False)
    rows = plain_rows(result.rows)
    bars, cells = miss_info(rows)[0], layer_info(plain_rows(result.layers), rows)[0]
    assert ODD_NAME in {bar.name for bar in bars.bars}
    assert ODD_NAME in cells.names
    for figure in (draw_misses(bars), draw_layers(cells)):
        labels = "".join(figure.layout.yaxis.ticktext)
        assert "<b>" not in labels
        assert "&lt;b&gt;" in labels


def test_figures_of_one_capacity_open_on_the_first_at_which_policies_compete() -> None:
    bound = {"is_bound": True, "prefetch": "none"}
    rows = [
        {**bound, "policy": "never", "capacity_label": "none", "capacity_experts": 0},
        {**bound, "policy": "unbounded", "capacity_label": "all", "capacity_experts": 64},
        {"policy": "lru", "prefetch": "none", "capacity_label": "25%", "capacity_experts": 16},
        {"policy": "lru", "prefetch": "none", "capacity_label": "5%", "capacity_experts": 4},
    ]
    assert capacity_choices(rows) == ["5%", "25%", "none", "all"]
