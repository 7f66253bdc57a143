"""What each kernel means: plain torch, slow and obvious, in float64. The fast versions are judged by these.

One file a kernel, with the signature that `kernels.cpu` and `kernels.gpu` share. Inputs keep their format until they are
widened here, so what differs from a reference is the fast version's own rounding. The result has the format of the input.

Shape letters: T tokens, D hidden, L latent width, W the width experts work in (D or L), N experts, K top-k, M expert
width, I = 2M if gated (gate rows first, then up rows) else M; B sequences, C context, J draft nodes, H query heads,
h KV heads, d head size, P pages, G tokens a page, X pages a sequence; p Mamba head size, G groups, n state size.
"""

from importlib.util import find_spec

from ...errors import UsageError

if find_spec("torch") is None:
    raise UsageError("the kernels need torch: pip install 'codesign-workbench[measure]'")
