"""Named facts: inputs, costs and the reporting block are all there, with their sources, and unknown is said."""

from __future__ import annotations

import re

import pytest
from codesign.reports.facts import KINDS, cost_info, dense_layers, facts, input_info, reporting_info
from codesign.reports.scales import UNKNOWN
from report_runs import ODD_NAME, made_result


@pytest.fixture
def run():
    return made_result(timeline=False).run


def shown(group):
    return {fact.name: fact.value for fact in group.facts}


def test_inputs_are_the_trace_the_model_the_machine_and_the_options(run):
    groups = input_info(run)
    assert [group.title for group in groups] == ["Trace", "Model", "Machine", "Options"]
    trace, model, machine, options = map(shown, groups)
    assert trace["sha256"] == run["trace"]["sha256"]
    assert trace["tokens"] == "8,000"
    assert trace["kind"] == "logged from a model"
    assert model["name"] == "olmoe-1b-7b"
    assert machine["name"] == "rtx-4090"
    assert options["policies"] == "lru, fifo"
    assert set(options) == {name.replace("_", " ") for name in run["options"]} | {"workbench version"}


def test_a_fact_the_trace_does_not_say_is_unknown_and_an_option_not_given_says_so(run):
    trace, *_, options = map(shown, input_info(run))
    assert trace["sequences"] == UNKNOWN
    assert options["out"] == "not given"


def test_without_model_and_machine_the_page_says_what_that_costs():
    model, machine = map(shown, input_info(made_result(times=False, timeline=False).run)[1:3])
    assert model == {"model": "none given: no bytes and no times"}
    assert machine == {"hardware": "none given: no times"}


def test_a_synthetic_trace_says_it_was_made_by_a_program(run):
    run["trace"]["synthetic"] = True
    assert shown(input_info(run)[0])["kind"] == "synthetic (made by a program)"


def test_each_number_that_costs_stand_on_is_shown_with_its_kind_and_its_source(run):
    info = cost_info(run)
    assert info.title == run["costs"]["source"]
    assert [(fact.name, fact.value, fact.kind, fact.source) for fact in info.facts] == [
        ("host link", "25.20 GB/s", "measured", "pcie bandwidth test"),
        ("memory", "1.008 TB/s", "datasheet", "vendor's data sheet"),
        ("link latency", "10.0 µs", "assumed", "typical of PCIe 4"),
    ]
    assert {fact.kind for fact in info.facts} == set(KINDS)


def test_a_run_without_times_has_no_costs_to_show():
    assert cost_info(made_result(times=False, timeline=False).run) is None


def test_a_quantity_without_kind_or_source_says_unknown_for_them(run):
    run["costs"]["provenance"] = [{"name": "host link", "value": 1e9, "unit": "B/s"}]
    assert [(fact.kind, fact.source) for fact in cost_info(run).facts] == [(UNKNOWN, UNKNOWN)]


def test_the_whole_reporting_block_is_shown_in_its_own_order():
    reporting = made_result(timeline=False).reporting
    listed = reporting_info(reporting)
    names = [fact.name.partition(" · ")[0] for fact in listed]
    expected = [re.sub(r"(?<!_per)_s$", "", name).replace("_", " ") for name in reporting]
    assert [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name] == expected
    by_name = {fact.name: fact.value for fact in listed}
    assert by_name["quota"] == UNKNOWN
    assert by_name["resident share"] == "5 %"
    assert by_name["decision cost · least-stale"] == "1.20 µs"
    assert by_name["N"] == "64"


def test_nested_facts_keep_every_leaf():
    tree = {"a": {"b": {"c": 1, "d": None}, "e": [1, 2, 3, 7]}, "f": True, "g": {"value": 3, "unit": "GB"}}
    assert {fact.name: fact.value for fact in facts(tree)} == {
        "a · b · c": "1", "a · b · d": UNKNOWN, "a · e": "1–3, 7", "f": "yes", "g": "3 GB",
    }  # fmt: skip


def test_layers_without_routed_experts_are_named_when_the_run_says_how_many_there_are():
    assert dense_layers({"trace": {"layer_ids": [1, 2, 4]}, "model": {"num_layers": 6}}) == (0, 3, 5)
    assert dense_layers({"trace": {"layer_ids": [1, 2, 4]}, "model": None}) == ()
    run = {"trace": {"layer_ids": [1, 2, 3]}, "model": {"num_layers": 4}}
    assert shown(input_info(run)[1])["layers without routed experts"] == "0"


def test_an_odd_name_is_gathered_whole_so_that_it_is_escaped_once(run):
    run["trace"]["path"] = ODD_NAME
    assert shown(input_info(run)[0])["path"] == ODD_NAME
