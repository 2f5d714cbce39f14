"""``npu::rotary_embedding``: positions turned into queries and keys by angles, pair by pair.

Importing this module registers the op with PyTorch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from npu_passes.ops.registration import register_composite

ROTARY_EMBEDDING = "npu.rotary_embedding.default"


@register_composite("(Tensor input, Tensor cos, Tensor sin) -> Tensor")
def rotary_embedding(input: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return ``input * cos + rotate_half(input) * sin`` of the first elements of rows, and the others.

    ``rotate_half`` of ``(first, second)`` is ``(-second, first)``: an element is paired with the one half of
    the width after it (Su et al., RoFormer, 2021, in the order of GPT-NeoX).

    Args:
        input: [*, size].
        cos: Broadcasts to [*, width], an even number of at most ``size`` elements; like ``sin``.
        sin: Likewise.
    """
    width = cos.shape[-1]
    turned = input[..., :width] if width != input.shape[-1] else input
    first, second = turned[..., : width // 2], turned[..., width // 2 :]
    turned = turned * cos + torch.cat((-second, first), -1) * sin
    return turned if width == input.shape[-1] else torch.cat((turned, input[..., width:]), -1)
