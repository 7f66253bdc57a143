"""A calibration of a GPU that is not there: the real plan, kernels (in Triton's interpreter), journal, fit; made-up times.

    python interpreted_gpu.py FOLDER [OPERATION THAT DOES NOT FIT] [VISITS | fail:VISITS]

`TRITON_INTERPRET=1` must be set. With VISITS the run is interrupted after as many; with fail:VISITS the device breaks down
at the operation's first shape after them.
"""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import dataclass
from itertools import product

import torch
from codesign.errors import RunError
from codesign.kernels import subjects
from codesign.kernels.arena import Arena
from codesign.kernels.devices import CudaDevice
from codesign.kernels.subjects import Bench
from codesign.sim.ops import Copy, DecodeAttention, Gemm, GroupedGemm, MoeLayer, Scan
from codesign.workbench import calibrate as module
from codesign.workbench import calibration_grids_gpu as real

TINY = {
    "gemm": lambda full: (Gemm(m, n, 32) for m, n in product((1, 4, 16), (16, 32, 48, 64))),
    "moe": lambda full: (GroupedGemm(t, 24, w, 4, 2) for t, w in product((1, 5), (16, 24, 32))),
    "moe_layer": lambda full: (
        MoeLayer(t, 32, 16, 4, 2, latent=latent, gated=latent is None) for t, latent in product((1, 3, 5), (None, 16))
    ),
    "attention_decode": lambda full: (DecodeAttention(b, c, 4, 2, 16) for b, c in product((1, 2), (17, 33, 49))),
    "scan": lambda full: (Scan(1, t, h, 8, 1, 8) for t, h in product((9, 21), (2, 4, 6))),
    "copy": lambda full: (
        Copy(size, source, target, pinned=pinned)
        for size, source, target, pinned in product((4096, 8192, 16384), ("host", "device"), ("host", "device"), (True, False))
        if (source, target) != ("host", "host") and (pinned or source != target)
    ),
}  # fmt: skip


@dataclass
class MadeUpTimes:
    """Runs a shape's call once and tells times that vary a little; not one of them is measured."""

    name: str
    step_s: float = 1e-9
    laps: int = 0
    ran: object = None

    def lap(self, functions, start, calls):
        if self.ran is not functions[0]:  # the interpreter takes long
            self.ran = functions[0]
            functions[0]()
        self.laps += 1
        return calls * 1e-5 * (1 + 0.01 * (self.laps % 7))


class InterpretedGpu(CudaDevice):
    """The processor in the place of a GPU: what needs a driver is answered here, all else is as for a GPU."""

    arena_bytes = 2**22

    def environment(self):
        return {"device": self.name, "device_name": "no GPU: Triton's interpreter", "machine": "test"}

    @contextlib.contextmanager
    def bench(self, folder=None):
        yield Bench(
            Arena(self.arena_bytes), 0, None, MadeUpTimes("made up"), MadeUpTimes("made up, of the host"), interpreted=True
        )

    def sample(self):
        return {"sm_clock_hz": 1e9}


def main() -> None:
    folder, *more = sys.argv[1:]
    assert set(TINY) == set(real.GPU_GRIDS)
    module.GPU_GRIDS = TINY
    if more and more[0]:
        name, builder = more[0], subjects.BUILDERS[more[0]]

        def too_large(op, bench):
            if getattr(op, "tokens", 0) == 5:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB\nand more")
            if fails and reached >= last:
                raise torch.AcceleratorError("CUDA error: unspecified launch failure\nCompile with more")
            return builder(op, bench)

        subjects.BUILDERS = {**subjects.BUILDERS, name: too_large}
    fails = len(more) > 1 and more[1].startswith("fail:")
    last = int(more[1].removeprefix("fail:")) if len(more) > 1 else None
    reached = 0

    def progress(done, total, left_s, what):
        nonlocal reached
        reached = done
        if done == last and not fails:
            raise KeyboardInterrupt

    try:
        result = module.calibrate(out=folder, device=InterpretedGpu(0), rounds=2, progress=progress, budget_s=300.0)
    except RunError as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps({**result.to_dict(), "lines": result.lines()}) + "\n")


if __name__ == "__main__":
    main()
