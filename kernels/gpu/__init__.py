"""The kernels in Triton, for CUDA devices, and torch's own product and copies. One file a kernel, with the signature of
`kernels.reference` where there is one.

Without a device they run in Triton's interpreter, slowly and for tests only: set TRITON_INTERPRET=1 before Triton is first
imported. Arrays must be contiguous and on one device; nothing here waits for the device, so what would have to be read
back to be checked (that a slot or a page exists) is the caller's promise.
"""

import os
from importlib.util import find_spec

from ...errors import UsageError

for _library in ("torch", "triton"):
    if find_spec(_library) is None:
        raise UsageError(
            f"the GPU kernels need {_library}: pip install 'codesign-workbench[measure]' (Triton exists for Linux only)"
        )

# Multiply and add are fused into one instruction. Triton 3.9 fuses but warns, 3.10 will not: fixed, so that times compare.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
