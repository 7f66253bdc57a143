"""The kernels as this machine's processor runs them best: torch, and numba where torch has none or copies too much.

One file a kernel, with the signature of its plain twin in `kernels.reference`. Threads are those that the caller set
(`kernels.environment.pinned`). Formats: fp32 and bf16; sums are in fp32.
"""

from importlib.util import find_spec

from ...errors import UsageError

if find_spec("torch") is None:
    raise UsageError("the kernels need torch: pip install 'codesign-workbench[measure]'")
