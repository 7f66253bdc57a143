"""Who decides on experts: the model's own routers (live), or a trace (forced). Either way the routers run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import UsageError
from ...sim.blocks import Block
from ...sim.engines.run import Setup
from ...traces.expert_trace import PADDING, ExpertTrace

if TYPE_CHECKING:
    from torch import Tensor

    from .layers import Layers


def blank_trace(
    *, prompts: NDArray[np.int64], decode_tokens: int, num_layers: int, num_experts: int, top_k: int,
    lookahead: int = 0, model: str = "live",
) -> ExpertTrace:  # fmt: skip
    """The frame of a live run: `prompts` [S] prompt lengths, and `decode_tokens` more a sequence, experts yet unknown."""
    lengths = prompts + decode_tokens
    starts = np.r_[0, np.cumsum(lengths)[:-1]].astype(np.int64)
    rows = int(lengths.sum())
    position = np.arange(rows) - np.repeat(starts, lengths)
    shape = (rows, num_layers, top_k)
    guesses = np.full((rows, num_layers, lookahead, top_k), PADDING, np.int32) if lookahead else None
    return ExpertTrace(
        experts_TLK=np.full(shape, PADDING, np.int32), layer_ids_L=np.arange(num_layers, dtype=np.int32),
        num_experts=num_experts, sequence_start_S=starts, model=model, source="the runtime's own routers",
        licence="none", synthetic=False, is_prefill_T=position < np.repeat(prompts, lengths), predicted_TLHM=guesses,
    )  # fmt: skip


def check_live(setup: Setup) -> None:
    """Raise `UsageError` for what would have to know what routers will choose."""
    if setup.policy.needs_future or setup.policy.name == "static":
        raise UsageError(
            f"policy {setup.policy.spec!r} needs the whole trace, and live routing is not known before it happens"
        )
    if setup.prefetch.needs == "future":
        raise UsageError(f"prefetch {setup.prefetch.spec!r} needs the future, and live routing has none")


def forced_weights(logits_TN: Tensor, ids_TK: NDArray[np.integer]) -> NDArray[np.float32]:
    """The routers' own weights of the experts that a trace names, adding up to 1; 0 for padding."""
    ids = torch.from_numpy(np.maximum(ids_TK, 0).astype(np.int64)).to(logits_TN.device)
    chosen = logits_TN.gather(1, ids)
    if (ids_TK < 0).any():
        chosen = chosen.masked_fill(torch.from_numpy(ids_TK < 0).to(chosen.device), -torch.inf)
    weights: NDArray[np.float32] = chosen.softmax(-1).nan_to_num(0.0).cpu().numpy()
    return weights


class LiveRouting:
    """Writes what routers choose into the block that decisions read, as the events happen."""

    def __init__(self, trace: ExpertTrace) -> None:
        self.experts_TLK = np.full(trace.experts_TLK.shape, PADDING, np.int32)
        guesses = trace.predicted_TLHM
        self.predicted: NDArray[Any] | None = (
            None if guesses is None else np.full(guesses.shape, PADDING, np.int32)
        )
        self._latest: dict[int, NDArray[np.int32]] = {}

    def begin_pass(self, block: Block, low: int, high: int, sequence_T: NDArray[np.integer]) -> None:
        """Let the prefetcher `previous` see each sequence's latest row of an earlier pass."""
        if not len(block.previous):
            return
        for row, sequence in enumerate(sequence_T.tolist()):
            if sequence in self._latest and (row == 0 or sequence_T[row - 1] != sequence):
                block.previous[low + row] = self._latest[sequence]

    def chose(
        self,
        block: Block,
        low: int,
        high: int,
        rows: NDArray[np.int64],
        layer: int,
        ids_TK: NDArray[np.int64],
    ) -> None:
        block.experts[low:high, layer] = ids_TK
        self.experts_TLK[rows, layer] = ids_TK

    def guess(
        self,
        block: Block,
        low: int,
        high: int,
        rows: NDArray[np.int64],
        layer: int,
        layers: Layers,
        x_TD: Tensor,
    ) -> None:
        """Ask the gates of the next layers about the present hidden state (mixtral-offloading, arXiv 2312.17238)."""
        if self.predicted is None:
            return
        routers = [layer.router_ND for layer in layers.weights.layers if layer.router_ND is not None]
        for ahead in range(self.predicted.shape[2]):
            target = layer + ahead + 1
            if target < len(routers):
                _, ids = layers.top_k(layers.router_logits(x_TD, routers[target]), self.predicted.shape[3])
                found = ids.cpu().numpy()
                self.predicted[rows, layer, ahead] = found
                if len(block.predicted):  # a prefetcher reads it
                    block.predicted[low:high, layer, ahead] = found

    def end_pass(self, block: Block, low: int, sequence_T: NDArray[np.integer]) -> None:
        for row, sequence in enumerate(sequence_T.tolist()):
            self._latest[sequence] = block.experts[low + row].copy()

    def trace_of(self, frame: ExpertTrace) -> ExpertTrace:
        """What was chosen, as a trace that can be replayed or forced."""
        return ExpertTrace(
            experts_TLK=self.experts_TLK, layer_ids_L=frame.layer_ids_L, num_experts=frame.num_experts,
            sequence_start_S=frame.sequence_start_S, model=frame.model, source=frame.source, licence=frame.licence,
            synthetic=False, is_prefill_T=frame.is_prefill_T, predicted_TLHM=self.predicted,
        )  # fmt: skip
