"""How the profiles of the catalog were made from aiconfigurator-core's tables (extra `silicon`): minutes each on one core.

    python examples/make_catalog_profiles.py h200_sxm trtllm h200-sxm-trtllm --out profiles

Products, attention and experts of one framework, in bf16 and fp8 (experts on Blackwell in nvfp4 too), rows without a doubt
alone. The TensorRT-LLM profiles take all-to-all from SGLang's DeepEP tables, which have more shapes.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from codesign.kernels.silicon import published_roof, read_published
from codesign.sim.profile import fit_profile, save_profile

OPERATIONS = ("gemm", "attention_prefill", "attention_decode", "moe")
FORMATS = {"bf16", "fp8"}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("system", help="such as h200_sxm")
    options.add_argument("framework", help="sglang, trtllm or vllm")
    options.add_argument("name", help="of the profile")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--rows", action="store_true", help="only say how many rows each law would stand on")
    asked = options.parse_args()
    published = read_published(asked.system, OPERATIONS, frameworks=(asked.framework,))
    if asked.framework == "trtllm":
        published |= read_published(asked.system, ("all_to_all",), frameworks=("sglang",))
    tables = []
    for operation, found in published.items():
        rows = found.measurements.rows
        rows = rows[rows["doubt"] == ""]
        if "weights" in rows:
            also = {"nvfp4"} if operation == "moe" and asked.system.startswith("b") and asked.framework == "trtllm" else set()
            rows = rows[rows["weights"].isin(FORMATS | also)]
        print(f"{operation}: {len(rows):,} rows", flush=True)
        tables.append(dataclasses.replace(found.measurements, rows=rows.reset_index(drop=True)))
    if asked.rows:
        return
    profile = fit_profile(
        tables, system=asked.system, roof=published_roof(asked.system), threads=1, progress=lambda text: print(text, flush=True)
    )
    print(save_profile(profile, asked.out / asked.name))


if __name__ == "__main__":
    main()
