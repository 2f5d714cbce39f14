"""The source of a model with an encoder: read once, and then by every token that is generated."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from npu_ir.errors import UsageError
from npu_runtime.decoders.extract import DecoderGraphs
from npu_runtime.decoders.token_checks import require_data, require_tokens
from npu_runtime.executor.executor import IRExecutor


class Source:
    """The source, as the decoder of a model reads it.

    Args:
        graphs: The graphs of the model.
        encoder: An executor of its encoder.
    """

    def __init__(self, graphs: DecoderGraphs, encoder: IRExecutor) -> None:
        self._graphs = graphs
        self._encoder = encoder
        self._encoded: list[Tensor] | None = None

    def encode(self, source: Tensor, mask: Tensor | None) -> list[Tensor]:
        """Return what the model reads of tokens, or of features: `set` takes it. See `Decoder.encode`."""
        if self._graphs.reads_tokens:
            tokens, is_used = self._padded(source, mask)
            return [is_used, *self._encoder(tokens, is_used)]
        if mask is not None:
            raise UsageError("features have no mask", fix="leave it out")
        if not isinstance(source, Tensor):
            raise UsageError(f"features are a tensor, not {type(source).__name__}")
        require_data(source, "features")
        return list(self._encoder(source.to(self._encoder.device)))

    def set(self, encoded: list[Tensor] | None) -> None:
        """Have the model read this from now on; nothing, if it is None."""
        self._encoded = encoded

    def encoded(self) -> list[Tensor]:
        """Return the mask of the tokens, if they are tokens, and the results of the encoder.

        Raises:
            UsageError: Nothing was read.
        """
        if self._encoded is None:
            raise UsageError("the decoder has no source to read", fix="call encode(source) first")
        return self._encoded

    def _padded(self, source: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return tokens and their mask, padded to the length that the graph takes."""
        require_tokens(self._graphs, source)
        length = self._encoder.graph.inputs[0].tensor_type.static_shape[1]
        if source.shape[1] > length:
            raise UsageError(
                f"the source has {source.shape[1]} tokens, and the encoder reads {length}",
                fix=f"capture the model with max_source_length={source.shape[1]}",
            )
        is_used = torch.ones_like(source, dtype=torch.bool) if mask is None else _as_truth(mask)
        if is_used.shape != source.shape:
            raise UsageError(f"the mask is {list(is_used.shape)}, and the source is {list(source.shape)}")
        if not is_used.any(1).all():
            raise UsageError("the mask hides all tokens of a row", fix="leave the row out")
        rest, device = (0, length - source.shape[1]), self._encoder.device
        return pad(source, rest).to(device), pad(is_used, rest).to(device)


def _as_truth(mask: Tensor) -> Tensor:
    if not isinstance(mask, Tensor) or mask.is_floating_point() or mask.is_complex():
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise UsageError(
            f"the mask is {kind}: it is a tensor of bool, or of integers that are 0 for padding",
            fix="mask > -1 makes one of a mask that is added to scores",
        )
    require_data(mask, "elements of the mask")
    return mask.bool()
