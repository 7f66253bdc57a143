"""Study files: what they mean, how they stream, and what is refused with the nearest right word."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import codesign
import pytest
from codesign.workbench.study import Study, load_study
from codesign.workbench.study_expression import Expression
from codesign.workbench.sweep_point import Point, scenario_hash

TRACE = "[traces.t]\nsynth = {layers = 2, experts = 8, top_k = 2, tokens = 20}\n"


def study(tmp_path: Path, text: str, trace: str = TRACE) -> Study:
    path = tmp_path / "study.toml"
    lines = text.splitlines(keepends=True)
    first_table = next((n for n, line in enumerate(lines) if line.startswith("[")), len(lines))
    path.write_text("".join([*lines[:first_table], trace, *lines[first_table:]]))
    return load_study(path)


def points(found: Study) -> list[Point]:
    return list(found.scenarios())


def test_a_grid_is_every_combination_and_the_last_axis_turns_fastest(tmp_path: Path) -> None:
    found = study(
        tmp_path, '[axes]\npolicy = ["lru", "fifo"]\ncapacity = ["25%", 8]\nhardware = "h200-sxm"\n'
    )
    assert [(p.policy, p.capacity) for p in points(found)] == [
        ("lru", "25%"), ("lru", "8"), ("fifo", "25%"), ("fifo", "8"),
    ]  # fmt: skip
    assert found.most() == 4


def test_a_range_in_a_grid_is_laid_out_evenly_or_by_ratio(tmp_path: Path) -> None:
    found = study(
        tmp_path,
        "[axes]\nlink_bytes_per_s = {low = 1e9, high = 16e9, log = true, steps = 5}\n"
        'capacity = {low = 10, high = 30, steps = 3, unit = "%"}\n',
    )
    assert [p.link_bytes_per_s for p in points(found)][::3] == [1e9, 2e9, 4e9, 8e9, 16e9]
    assert [p.capacity for p in points(found)][:3] == ["10%", "20%", "30%"]


def test_a_list_is_its_points_over_what_the_axes_say_once(tmp_path: Path) -> None:
    found = study(
        tmp_path,
        'kind = "list"\n[axes]\nprefetch = "previous"\n'
        '[[points]]\npolicy = "lru"\nrepeat = 0\n[[points]]\npolicy = "lru"\nrepeat = 1\n',
    )
    assert [(p.policy, p.prefetch, p.repeat) for p in points(found)] == [
        ("lru", "previous", 0),
        ("lru", "previous", 1),
    ]


@pytest.mark.parametrize("kind", ["random", "sobol"])
def test_draws_stay_inside_their_ranges_and_one_seed_gives_the_same(tmp_path: Path, kind: str) -> None:
    text = (
        f'kind = "{kind}"\nsamples = 64\nseed = 3\n[axes]\npolicy = ["lru", "lfu", "fifo", "sieve"]\n'
        "link_bytes_per_s = {low = 1e9, high = 64e9, log = true}\n"
    )
    found = points(study(tmp_path, text))
    assert found == points(study(tmp_path, text))
    assert all(1e9 <= p.link_bytes_per_s <= 64e9 for p in found if p.link_bytes_per_s)
    assert len({p.link_bytes_per_s for p in found}) == 64
    if kind == "sobol":  # 64 points over 4 names and 8 octaves: evenly filled, which draws are not
        counts = {name: sum(p.policy == name for p in found) for name in ("lru", "lfu", "fifo", "sieve")}
        assert set(counts.values()) == {16}


def test_derived_values_and_filters_see_axes_and_variables(tmp_path: Path) -> None:
    found = study(
        tmp_path,
        'filters = ["not (ahead == 2 and policy == \'lru\')"]\n[axes]\npolicy = ["lru", "lfu"]\n'
        "[variables]\nahead = [1, 2]\n[derived]\nprefetch = \"'previous:ahead=' + text(ahead)\"\n",
    )
    assert [(p.policy, p.prefetch) for p in points(found)] == [
        ("lru", "previous:ahead=1"), ("lfu", "previous:ahead=1"), ("lfu", "previous:ahead=2"),
    ]  # fmt: skip


def test_repeats_have_their_own_number_and_seed(tmp_path: Path) -> None:
    found = points(study(tmp_path, "repeats = 3\n[axes]\nseed = 7\n"))
    assert [(p.repeat, p.seed) for p in found] == [(0, 7), (1, 8), (2, 9)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[axis]\npolicy = 1\n", r"unknown key 'axis'; did you mean 'axes'\?"),
        ('[axes]\npolicies = ["lru"]\n', r"unknown axis 'policies'; did you mean 'policy'\?"),
        ('[axes]\ncapacity = {low = 1, high = 2, step = 3}\n', r"unknown key of range capacity 'step'; did you mean 'steps'\?"),
        ("[axes]\npolicy = []\n", "axis policy has no values"),
        ('filters = ["policy == \'fifo\'"]\n', "no scenarios: its filters leave none"),
        ('filters = ["polcy == \'fifo\'"]\n', r"unknown name in .* did you mean 'policy'\?"),
        ('filters = ["__import__(\'os\')"]\n', "unknown function"),
        ('filters = ["().__class__"]\n', "is not allowed"),
        ("[axes]\nbatch = 0\n", "batch: .*greater than or equal to 1, got 0"),
        ("[axes]\nlink_bytes_per_s = -1.0\n", "link_bytes_per_s: .*greater than 0"),
        ("[axes]\nlink_bytes_per_s = {low = 2, high = 1, steps = 2}\n", "low must be below high"),
        ("[axes]\nlink_bytes_per_s = {low = 1, high = 2}\n", "needs steps"),
        ('kind = "sobol"\n', "samples is needed"),
        ('kind = "list"\n', "points.* are needed"),
        ('[axes]\ntrace = ["u"]\n', "unknown trace 'u'"),
        ("repeats = 0\n", "repeats: .*got 0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_name_and_what_would_be_right(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(codesign.InputFileError, match=reason):
        study(tmp_path, text)


def test_a_trace_needs_a_path_or_numbers_and_its_own_keys(tmp_path: Path) -> None:
    with pytest.raises(codesign.InputFileError, match="either a path or synth"):
        study(tmp_path, "", trace="[traces.t]\nmodel = 'x'\n")
    with pytest.raises(codesign.InputFileError, match=r"'token'; did you mean 'tokens'"):
        study(tmp_path, "", trace="[traces.t]\nsynth = {token = 3}\n")


def test_a_million_scenarios_stream_and_the_first_comes_at_once(tmp_path: Path) -> None:
    found = study(
        tmp_path,
        "[axes]\nseed = {low = 0, high = 99999, steps = 100000, whole = true}\npolicy = ['lru', 'lfu']\n"
        "capacity = [8, 9, 10, 11, 12]\n",
    )
    assert found.most() == 1_000_000
    started = time.perf_counter()
    stream = found.scenarios()
    assert isinstance(stream, Iterator)
    assert len(list(itertools.islice(stream, 1000))) == 1000
    assert time.perf_counter() - started < 5  # building all of them takes much longer


def test_an_expression_that_cannot_be_computed_names_itself_and_its_values() -> None:
    one = Expression("link_bytes_per_s / seed", ["link_bytes_per_s", "seed"])
    assert one.value({"link_bytes_per_s": 8.0, "seed": 2}) == 4.0
    with pytest.raises(codesign.UsageError, match=r"'link_bytes_per_s / seed'.*'seed': 0.*division by zero"):
        one.value({"link_bytes_per_s": 8.0, "seed": 0})
    with pytest.raises(codesign.UsageError, match="texts can only be added"):
        Expression("'ab' * 1000000000", []).value({})


def test_a_hash_changes_with_configuration_repeat_input_and_version_and_with_nothing_else() -> None:
    base = Point(trace="t")
    names = [
        scenario_hash(base, {"trace": "a"}, "1"),
        scenario_hash(base.model_copy(update={"policy": "lfu"}), {"trace": "a"}, "1"),
        scenario_hash(base.model_copy(update={"repeat": 1}), {"trace": "a"}, "1"),
        scenario_hash(base, {"trace": "b"}, "1"),
        scenario_hash(base, {"trace": "a"}, "2"),
    ]
    assert len(set(names)) == len(names)
    assert scenario_hash(Point(trace="t", policy="lru"), {"trace": "a"}, "1") == names[0]
