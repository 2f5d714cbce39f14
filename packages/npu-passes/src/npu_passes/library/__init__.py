"""Built-in passes of npu-passes, one per module."""

from __future__ import annotations

from npu_passes.base import Pass
from npu_passes.library.canonicalize import Canonicalize
from npu_passes.library.constant_folding import ConstantFolding
from npu_passes.library.conv_add_folding import ConvAddFolding
from npu_passes.library.conv_bn_folding import ConvBnFolding
from npu_passes.library.cse import Cse
from npu_passes.library.dead_code import DeadCode
from npu_passes.library.dead_gradients import DeadGradients
from npu_passes.library.decompose import Decompose
from npu_passes.library.elim_identity import ElimIdentity
from npu_passes.library.fuse_add_norm import FuseAddNorm
from npu_passes.library.fuse_attention import FuseAttention
from npu_passes.library.fuse_linear_activation import FuseLinearActivation
from npu_passes.library.fuse_linear_backward import FuseLinearBackward
from npu_passes.library.fuse_loss_gradient import FuseLossGradient
from npu_passes.library.fuse_optimizer import FuseOptimizer
from npu_passes.library.gather_gradients import GatherGradients
from npu_passes.library.hoist_fill import HoistFill
from npu_passes.library.lower_foreach import LowerForeach
from npu_passes.library.narrow_expand import NarrowExpand
from npu_passes.library.scalars_to_tensors import ScalarsToTensors

PASSES: tuple[type[Pass], ...] = (
    Canonicalize,
    ElimIdentity,
    Cse,
    DeadCode,
    ConvBnFolding,
    ConvAddFolding,
    ConstantFolding,
    FuseAttention,
    FuseAddNorm,
    FuseLinearActivation,
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
)
