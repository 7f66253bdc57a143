"""Where there is no GPU, Triton's kernels run in its interpreter: that must be said before anything imports Triton."""

import os

from codesign.kernels.probe import probe_gpus

if not probe_gpus().gpus:
    os.environ.setdefault("TRITON_INTERPRET", "1")
