"""How good a profile is: whole shapes held out, predicted from the others, compared with what was measured.

A shape is held out where int(sha256(repr(shape)), 16) % 5 == 0, the formats' name included. Held-out rows take no part
in any choice: laws, lengths and bands are chosen inside the other shapes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..kernels.silicon import published_roof, read_published
from ..sim.measurement import Measurements, operations_of
from ..sim.profile import Profile, Roof, fit_profile
from ..sim.profile.axes import axes_of
from ..sim.profile.grids import UNKNOWN_ROOF, Grid, grids_of
from ..sim.profile.models import fit_new_models

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
SHAPES = {
    "gemm": ("dtype", "n", "k"),
    "attention_prefill": ("dtype", "heads", "kv_heads", "head_dim", "window"),
    "attention_decode": ("dtype", "heads", "kv_heads", "head_dim", "window"),
    "moe": ("dtype", "hidden", "width", "top_k", "num_experts", "tp", "ep"),
}
"""What makes a whole shape, in the order that is hashed."""
CHECKED = tuple(SHAPES)
_MODEL_FOLDS = 6
"""Folds of models where every one is left out by fitting again (the report's points): closed forms need none."""


@dataclass(frozen=True)
class CheckRow:
    """Held-out error of one operation. Errors and coverage are fractions; absent (None) where nothing was judged."""

    operation: str
    rows: int
    median_ape: float | None
    p90_ape: float | None
    coverage_90: float | None
    coverage_passes: bool | None
    """Between 85 and 95 %; below 200 rows: the exact binomial 95 % interval contains 90 %."""
    plain_ratio: float | None
    """Median error over that of plain interpolation (nearest grid shape, linear): below 1 is better than plain."""
    law: str
    left_out: dict[str, int] = field(default_factory=dict)
    """Reason → rows that are not in `rows`."""
    median_ape_all: float | None = None
    p90_ape_all: float | None = None
    """With the rows left out as contradicting (disturbed) put back."""
    parts: dict[str, tuple[int, float, float]] = field(default_factory=dict)
    """Framework → rows, median, 90th percentile."""

    def to_dict(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}


def profile_check(
    system: str,
    operations: Sequence[str] | None = None,
    *,
    new_models: bool = True,
    seed: int = 0,
    threads: int = 2,
    progress: Callable[[str], None] | None = None,
) -> list[CheckRow]:
    """Held-out error of the published measurements of a system, per operation, `moe_new_model` among them.

    Raises `UsageError` on an unknown system or operation, or without the extra `silicon`.
    """
    wanted = tuple(operations or CHECKED)
    for name in wanted:
        if name not in SHAPES:
            raise UsageError(f"operation {name!r} has no held-out check; known: {', '.join(CHECKED)}")
    result = []
    for name, published in read_published(system, wanted).items():
        rows = published.measurements.rows
        held = held_out(rows, SHAPES[name])
        table, roof = published.measurements, published_roof(system)
        result.append(check_rows(table, held, roof, seed=seed, threads=threads, progress=progress))
        if name == "moe" and new_models:
            result.append(check_new_models(table, roof, seed=seed, threads=threads, progress=progress))
    return result


def held_out(rows: pd.DataFrame, shape: Sequence[str]) -> NDArray[np.bool_]:
    """Which rows belong to shapes that are held out, by the hash of the shape alone."""
    from ..sim.profile.codes import codes_of

    code = codes_of(rows, shape)
    first = np.unique(code, return_index=True)[1]
    table = rows[list(shape)].iloc[first]
    flags = [
        int(
            hashlib.sha256(
                repr(tuple(v.item() if hasattr(v, "item") else v for v in row)).encode()
            ).hexdigest(),
            16,
        )
        % 5
        == 0
        for row in table.itertuples(index=False, name=None)
    ]
    return np.array(flags, bool)[code]


def check_rows(
    table: Measurements, held: NDArray[np.bool_], roof: Roof | None, *, seed: int = 0, threads: int = 2,
    progress: Callable[[str], None] | None = None,
) -> CheckRow:  # fmt: skip
    """Fit on the rows that are not held out and not doubtful; judge on the held-out ones."""
    rows = table.rows.reset_index(drop=True)
    doubt = rows["doubt"].to_numpy(str) if "doubt" in rows else np.full(len(rows), "")
    fit = _part(table, rows, ~held & (doubt == ""))
    profile = fit_profile(
        [fit], system="check", roof=roof, seed=seed, threads=threads, models=False, progress=progress
    )
    judged = rows[held].reset_index(drop=True)
    guess, low, high, known = predict(profile, table.operation, judged, new_model=False)
    left = _reasons(doubt[held])
    unsupported = int((~known).sum())
    if unsupported:
        left["kernel measured for no other shape"] = unsupported
    clean = known & (doubt[held] == "")
    plain = plain_interpolation(table.operation, fit.rows, judged)
    law = profile.laws[table.operation].chosen
    return _row(
        table.operation,
        judged,
        guess,
        low,
        high,
        clean,
        known & ~np.isin(doubt[held], _NOT_RUNS),
        law,
        left,
        plain,
    )


def check_new_models(
    table: Measurements, roof: Roof | None, *, seed: int = 0, threads: int = 2,
    progress: Callable[[str], None] | None = None,
) -> CheckRow:  # fmt: skip
    """Every (hidden, width, top-k, experts) in turn predicted without any of its rows.

    The surface leaves each model out in closed form, trees and bands leave it out in folds of models; length scales and
    the trees' shares are chosen over all models at once. Rows whose kernel and formats no other model ran with are
    counted apart as unsupported.
    """
    rows = table.rows.reset_index(drop=True)
    doubt = rows["doubt"].to_numpy(str) if "doubt" in rows else np.full(len(rows), "")
    (progress or (lambda _: None))("moe_new_model: models left out")
    grids = grids_of(axes_of(table.operation), _part(table, rows, doubt == "").rows, roof)
    new = fit_new_models(grids, roof or UNKNOWN_ROOF, seed, threads)
    guess, half = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    known = np.zeros(len(rows), bool)
    for number, where, shape, cell in _cells(grids, rows):
        base = grids[number].base_at_cells(grids[number].shapes, roof or UNKNOWN_ROOF)
        guess[where] = np.exp(new.guess[number][shape, cell]) * base[shape, cell]
        half[where], known[where] = new.half[number][shape, cell], new.supported[number][shape]
    left = _reasons(doubt)
    left["unsupported: kernel ran for no other model"] = int((~known).sum())
    runs = known & ~np.isin(doubt, _NOT_RUNS)
    low, high = guess * np.exp(-half), guess * np.exp(half)
    return _row(
        "moe_new_model", rows, guess, low, high, known & (doubt == ""), runs, "surface and trees", left, None
    )


def _cells(grids: list[Grid], rows: pd.DataFrame) -> Iterator[tuple[int, Any, Any, Any]]:
    """(group, rows that lie on its grid, their shapes, their grid points)."""
    for number, grid in enumerate(grids):
        axes, mine = grid.axes, np.ones(len(rows), bool)
        for name, value in grid.group.items():
            mine &= (rows[name] == value).to_numpy(bool)
        where = np.flatnonzero(mine)
        part = rows.iloc[where]
        shapes = np.stack(
            [part[n].to_numpy(np.float64) if n in part else np.zeros(len(part)) for n in axes.shape], axis=1
        )
        shape = np.array([grid.index.get(tuple(one), -1) for one in shapes.tolist()], np.int64)
        b = np.searchsorted(grid.b, part[axes.b].to_numpy(np.float64)).clip(0, len(grid.b) - 1)
        there = (shape >= 0) & (grid.b[b] == part[axes.b].to_numpy(np.float64))
        if axes.a_is_category:
            there &= part[str(axes.a)].isin(list(grid.a)).to_numpy(bool)
        cell = _place_a(axes, grid.a, part) * len(grid.b) + b
        yield number, where[there], shape[there], cell[there]


def _reasons(doubt: NDArray[np.str_]) -> dict[str, int]:
    names, counts = np.unique(doubt[doubt != ""], return_counts=True)
    return {str(reason): int(count) for reason, count in zip(names, counts, strict=True)}


_NOT_RUNS = ("older version of the same run", "same run, contradictory times")


def predict(
    profile: Profile, operation: str, rows: pd.DataFrame, *, new_model: bool | None = None
) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
    """(seconds, low, high, whether the row's own kernel and formats were measured at all), each [R]."""
    out = [np.full(len(rows), np.nan) for _ in range(3)]
    known = np.zeros(len(rows), bool)
    kernels = rows[["framework", "kernel"]].astype(str).agg("|".join, axis=1) if "kernel" in rows else None
    groups = {"": np.arange(len(rows))} if kernels is None else kernels.groupby(kernels).indices
    for _, where in groups.items():
        part = rows.iloc[where]
        names = {n: str(part[n].iloc[0]) for n in ("framework", "kernel") if n in part}
        columns = [c for c in part.columns if c in axes_of(operation).defaults]
        for index, one in operations_of(operation, part[columns]):
            answer = profile.query(
                one, framework=names.get("framework"), kernel=names.get("kernel"), new_model=new_model
            )
            for column, value in zip(out, (answer.seconds, answer.low, answer.high), strict=True):
                column[where[index]] = value
            known[where[index]] = answer.how != 3
    return out[0], out[1], out[2], known


def plain_interpolation(operation: str, fit: pd.DataFrame, judged: pd.DataFrame) -> Floats:
    """What linear look-up in the nearest measured shape gives: seconds of that shape, linear in the first axis [R].

    The nearest shape is that of the same kernel and formats with the least distance of logarithms; its seconds at the
    row's point are scaled by nothing: the tables' own grid is taken as it is.
    """
    axes = axes_of(operation)
    trained = {tuple(sorted((k, str(v)) for k, v in g.group.items())): g for g in grids_of(axes, fit, None)}
    answer = np.full(len(judged), np.nan)
    names = [n for n in ("framework", "kernel", *axes.group) if n in judged]
    for key, where in judged.groupby(names).indices.items():
        values = dict(zip(names, key if isinstance(key, tuple) else (key,), strict=True))
        grid = trained.get(tuple(sorted((k, str(v)) for k, v in values.items())))
        if grid is None:
            continue
        part = judged.iloc[where]
        shapes = np.stack(
            [part[n].to_numpy(np.float64) if n in part else np.zeros(len(part)) for n in axes.shape], axis=1
        )
        distinct, which = np.unique(shapes, axis=0, return_inverse=True)
        distance = ((grid.coords_of(distinct)[:, None] - grid.coords[None]) ** 2).sum(-1)
        nearest = distance.argmin(axis=1)[which.reshape(-1)]
        seconds = np.exp(grid.ratio) * grid.base_at_cells(grid.shapes, UNKNOWN_ROOF)
        curves = seconds.reshape(len(grid.shapes), len(grid.a), len(grid.b))
        a = _place_a(axes, grid.a, part)
        b = part[axes.b].to_numpy(np.float64)
        for row, (shape, second) in enumerate(zip(nearest, a, strict=True)):
            curve = curves[shape, second]
            ok = np.isfinite(curve)
            if ok.any():
                answer[where[row]] = np.interp(b[row], grid.b[ok], curve[ok])
    return answer


def _place_a(axes: Any, known: tuple[Any, ...], part: pd.DataFrame) -> NDArray[np.int64]:
    if axes.a is None:
        return np.zeros(len(part), np.int64)
    if axes.a_is_category:
        place = {name: i for i, name in enumerate(known)}
        return np.array([place.get(str(v), 0) for v in part[axes.a]])
    return np.asarray(
        np.abs(part[axes.a].to_numpy(np.float64)[:, None] - np.array(known)[None]).argmin(axis=1), np.int64
    )


def _part(table: Measurements, rows: pd.DataFrame, mask: NDArray[np.bool_]) -> Measurements:
    return Measurements(
        table.operation, rows[mask].reset_index(drop=True), table.source, table.licence, table.environment
    )


def _row(
    name: str, rows: pd.DataFrame, guess: Floats, low: Floats, high: Floats, clean: NDArray[np.bool_],
    runs: NDArray[np.bool_], law: str, left: dict[str, int], plain: Floats | None,
) -> CheckRow:  # fmt: skip
    took = rows["seconds"].to_numpy(np.float64)
    error = np.abs(guess / took - 1.0)
    count = int(clean.sum())
    if not count:
        return CheckRow(name, 0, None, None, None, None, None, law, left)
    inside = ((took >= low) & (took <= high))[clean]
    ratio = None
    if plain is not None:
        both = clean & np.isfinite(plain)
        ratio = float(np.median(error[both]) / max(float(np.median(np.abs(plain / took - 1.0)[both])), 1e-12))
    framework = rows["framework"].to_numpy(str) if "framework" in rows else np.full(len(rows), "all")
    parts = {}
    for one in np.unique(framework[clean]):
        part = error[clean & (framework == one)]
        parts[str(one)] = (len(part), float(np.median(part)), float(np.quantile(part, 0.9)))
    return CheckRow(
        name, count, float(np.median(error[clean])), float(np.quantile(error[clean], 0.9)), float(inside.mean()),
        coverage_passes(int(inside.sum()), count), ratio, law, left,
        float(np.median(error[runs])), float(np.quantile(error[runs], 0.9)), parts,
    )  # fmt: skip


def coverage_passes(inside: int, count: int) -> bool:
    """From 200 values on: 85 to 95 %. Below: the exact (Clopper-Pearson) 95 % interval contains 90 %."""
    if count >= 200:
        return 0.85 <= inside / count <= 0.95
    from math import comb

    def tail(at_least: int) -> float:
        return sum(comb(count, i) * 0.9**i * 0.1 ** (count - i) for i in range(at_least, count + 1))

    return tail(inside) >= 0.025 and 1.0 - tail(inside + 1) >= 0.025


_MIXTURES = {
    "Nemotron-3 Super": ("latent", 1024, 2688, 22, 512, 4096),
    "Nemotron-3 Ultra": ("latent", 2048, 5120, 22, 512, 8192),
    "Kimi-K3": ("latent", 3584, 3072, 16, 896, 7168),
    "DeepSeek-V3": ("standard", 7168, 2048, 8, 256, 7168),
    "Qwen3-235B-A22B": ("standard", 4096, 1536, 8, 128, 4096),
    "Qwen3-30B-A3B": ("standard", 2048, 768, 8, 128, 2048),
    "MiniMax-M2": ("standard", 3072, 1536, 8, 256, 3072),
}
"""Name → kind, width of the routed experts, inner width, top-k, experts, width of the model. Hugging Face configs."""


def latent_against_standard(
    system: str, tokens: Sequence[int] = (1, 16, 256, 4096), distribution: str = "balanced"
) -> list[dict[str, Any]]:
    """Measured routed experts of latent and standard mixtures on one device (TP 1, EP 1), and the roof's floor.

    One row per model, number format and token count: `seconds` (the fastest framework's, of runs that are not faster than
    the floor), `seconds_per_token`, `floor_s`, `weight_bytes`, `kernel`. A run faster than its floor touched fewer experts
    than even loads would. Where a whole layer's experts do not fit one device there is no row.
    """
    found = read_published(system, ["moe"])["moe"].trusted.rows
    whole = found[(found["tp"] == 1) & (found["ep"] == 1) & (found["distribution"] == distribution)]
    roof = published_roof(system)
    result: list[dict[str, Any]] = []
    for name, (kind, width, inner, top_k, experts, hidden) in _MIXTURES.items():
        mine = whole[
            (whole["hidden"] == width) & (whole["width"] == inner) & (whole["top_k"] == top_k)
            & (whole["num_experts"] == experts) & whole["tokens"].isin(list(tokens))
        ]  # fmt: skip
        if mine.empty:
            continue
        for _, rows in mine.groupby(["dtype", "tokens"]):
            dtype, count = str(rows["dtype"].iloc[0]), int(rows["tokens"].iloc[0])
            ordered = rows.sort_values("seconds").reset_index(drop=True)
            columns = [c for c in ordered.columns if c in axes_of("moe").defaults]
            floors = [
                roof.seconds(next(iter(operations_of("moe", ordered[columns].iloc[[i]])))[1])[0]
                for i in range(len(ordered))
            ]
            possible = np.flatnonzero(ordered["seconds"].to_numpy(np.float64) >= np.array(floors))
            if not len(possible):
                continue
            best = ordered.iloc[[int(possible[0])]].reset_index(drop=True)
            _, one = next(iter(operations_of("moe", best[columns])))
            seconds = float(best["seconds"].iloc[0])
            result.append({
                "system": system, "model": name, "kind": kind, "model_width": hidden, "expert_width": width,
                "dtype": dtype, "tokens": count, "seconds": seconds, "seconds_per_token": seconds / count,
                "floor_s": float(roof.seconds(one)[0]), "weight_bytes": float(np.asarray(one.weight_bytes)[0]),
                "framework": str(best["framework"].iloc[0]), "kernel": str(best["kernel"].iloc[0]),
            })  # fmt: skip
    return result
