"""The passes that npu-passes provides, one module or folder each.

In: a graph that keeps the rules of the IR. Out: the same graph, rewritten, and whether anything changed. Open
`cleanup/cse.py` first: it is the shortest complete pass.
"""

from __future__ import annotations

from npu_passes.core.base import Pass
from npu_passes.library.cleanup.canonicalize import Canonicalize
from npu_passes.library.cleanup.cse import Cse
from npu_passes.library.cleanup.dead_code import DeadCode
from npu_passes.library.cleanup.dead_gradients import DeadGradients
from npu_passes.library.cleanup.elim_identity import ElimIdentity
from npu_passes.library.cleanup.hoist_fill import HoistFill
from npu_passes.library.cleanup.narrow_expand import NarrowExpand
from npu_passes.library.decompose import Decompose
from npu_passes.library.folding.constant_folding import ConstantFolding
from npu_passes.library.folding.conv_add_folding import ConvAddFolding
from npu_passes.library.folding.conv_bn_folding import ConvBnFolding
from npu_passes.library.fusion.fuse_add_norm import FuseAddNorm
from npu_passes.library.fusion.fuse_attention import FuseAttention
from npu_passes.library.fusion.fuse_linear_activation import FuseLinearActivation
from npu_passes.library.fusion.fuse_rms_norm import FuseRmsNorm
from npu_passes.library.fusion.fuse_rotary import FuseRotary
from npu_passes.library.fusion.group_heads import GroupHeads
from npu_passes.library.quantization.quantize_weights import QuantizeWeights
from npu_passes.library.training.fuse_linear_backward import FuseLinearBackward
from npu_passes.library.training.fuse_loss_gradient import FuseLossGradient
from npu_passes.library.training.fuse_optimizer import FuseOptimizer
from npu_passes.library.training.gather_gradients import GatherGradients
from npu_passes.library.training.lower_foreach import LowerForeach
from npu_passes.library.training.recompute import Recompute
from npu_passes.library.training.scalars_to_tensors import ScalarsToTensors

PASSES: tuple[type[Pass], ...] = (
    Canonicalize,
    ElimIdentity,
    Cse,
    DeadCode,
    ConvBnFolding,
    ConvAddFolding,
    ConstantFolding,
    FuseAttention,
    FuseRmsNorm,
    FuseRotary,
    FuseAddNorm,
    FuseLinearActivation,
    GroupHeads,
    QuantizeWeights,
    GatherGradients,
    FuseLossGradient,
    FuseLinearBackward,
    Decompose,
    LowerForeach,
    HoistFill,
    NarrowExpand,
    DeadGradients,
    FuseOptimizer,
    ScalarsToTensors,
    Recompute,
)
