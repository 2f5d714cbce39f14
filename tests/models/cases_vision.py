"""Families of `timm` and `torchvision`: the smallest member of each, on small images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.models.case import Case, Input
from tests.models.torchvision_ops import make_torchvision_importable

make_torchvision_importable()

import timm  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402


def from_timm(name: str, size: int = 64, **options: Any) -> Case:
    """Return the case of a model of `timm`, for square images of fixed ``size``."""

    def build() -> torch.nn.Module:
        return timm.create_model(name, pretrained=False, num_classes=10, **options)

    return Case(name, "timm", "vision", build, (Input("x", ("batch", 3, size, size)),))


# Of a smaller image some models make a map of size 1, which torch.export takes for a case of its own.
LARGE = {"height": (96, 128), "width": (128, 192)}


def convolutional(name: str, sizes: Mapping[str, tuple[int, int]] = {}, **options: Any) -> Case:
    """Return the case of a model of `timm` that takes images of any size."""

    def build() -> torch.nn.Module:
        return timm.create_model(name, pretrained=False, num_classes=10, **options)

    return Case(name, "timm", "vision", build, (Input("x", ("batch", 3, "height", "width")),), sizes)


def from_torchvision(name: str, size: int | None = None, argument: str = "x", **options: Any) -> Case:
    """Return the case of a model of `torchvision`, for images of any or of fixed ``size``."""

    def build() -> torch.nn.Module:
        given = {"weights": None, **options}
        return torchvision.models.get_model(name, **given)

    image = ("batch", 3, "height", "width") if size is None else ("batch", 3, size, size)
    return Case(name, "torchvision", "vision", build, (Input(argument, image),))


def video(name: str) -> Case:
    """Return the case of a model of `torchvision` for moving images."""
    build = lambda: torchvision.models.get_model(name, weights=None)  # noqa: E731
    return Case(name, "torchvision", "video", build, (Input("x", ("batch", 3, 8, 32, 32)),))


TIMM = (
    convolutional("test_resnet"),
    convolutional("resnetv2_18"),
    convolutional("regnety_002"),
    convolutional("test_byobnet"),
    convolutional("mobilenetv2_035"),
    convolutional("mobilenetv3_small_050"),
    convolutional("lcnetv2_small"),
    convolutional("ghostnet_050"),
    convolutional("repghostnet_050"),
    convolutional("starnet_s050"),
    convolutional("test_convnext"),
    convolutional("inception_next_atto"),
    convolutional("test_mambaout"),
    convolutional("fasternet_t0"),
    convolutional("hgnetv2_b0"),
    convolutional("ese_vovnet19b_slim_dw"),
    convolutional("dla46_c"),
    convolutional("cs3darknet_focus_s"),
    convolutional("cspnext_tiny"),
    convolutional("densenet121"),
    convolutional("dpn48b"),
    convolutional("test_nfnet"),
    convolutional("legacy_seresnet18"),
    convolutional("skresnet18"),
    convolutional("resnest14d"),
    convolutional("res2net50_14w_8s"),
    convolutional("rexnet_100"),
    convolutional("hrnet_w18_small"),
    convolutional("convmixer_768_32"),
    convolutional("poolformer_s12"),
    convolutional("repvit_m0_9"),
    convolutional("shvit_s1", LARGE),
    convolutional("efficientvim_m1", LARGE),
    convolutional("edgenext_xx_small"),
    convolutional("efficientvit_b0"),
    convolutional("fastvit_t8"),
    convolutional("iformer_t"),
    convolutional("pvt_v2_b0"),
    from_timm("davit_tiny"),
    from_timm("focalnet_tiny_srf"),
    from_timm("nextvit_small"),
    convolutional("rdnet_tiny"),
    convolutional("lowformer_b0"),
    convolutional("cpubone_nano"),
    convolutional("selecsls42", LARGE),
    from_timm("test_vit", img_size=64),
    from_timm("test_vit_relpos", img_size=64),
    from_timm("deit_tiny_patch16_224", img_size=64),
    from_timm("eva02_tiny_patch14_224", 56, img_size=56),
    from_timm("cait_xxs24_224", img_size=64),
    from_timm("coat_lite_tiny", img_size=64),
    from_timm("crossvit_tiny_240", 240),
    from_timm("efficientformer_l1", 224),
    from_timm("efficientformerv2_s0", 224),
    from_timm("efficientvit_m0", 224),
    from_timm("gcvit_xxtiny", 224),
    from_timm("hiera_tiny_224", 224),
    from_timm("levit_128s", 224),
    from_timm("maxvit_pico_rw_256", 64, img_size=64),
    from_timm("gmlp_ti16_224", img_size=64),
    from_timm("nest_tiny", 64, img_size=64),
    from_timm("pit_ti_224", 64, img_size=64),
    from_timm("swiftformer_xs", 64),
    from_timm("swin_tiny_patch4_window7_224", 64, img_size=64, window_size=4),
    from_timm("swinv2_tiny_window8_256", 64, img_size=64, window_size=4),
    from_timm("swinv2_cr_tiny_224", 64, img_size=64),
    from_timm("sequencer2d_s", 64),
    from_timm("tiny_vit_5m_224", 64),
    from_timm("tnt_s_patch16_224", 64, img_size=64),
    from_timm("twins_svt_small", 64, img_size=64),
    from_timm("visformer_tiny", 64, img_size=64),
    from_timm("vit_tiny_r_s16_p8_224", 64, img_size=64),
    from_timm("vitamin_small_224", 64, img_size=64),
    from_timm("volo_d1_224", 64, img_size=64),
    from_timm("xcit_nano_12_p16_224", 64, img_size=64),
)

TORCHVISION = (
    from_torchvision("alexnet"),
    from_torchvision("vgg11"),
    from_torchvision("squeezenet1_1"),
    from_torchvision("googlenet", init_weights=False),
    from_torchvision("inception_v3", 96, init_weights=False),
    from_torchvision("shufflenet_v2_x0_5"),
    from_torchvision("mnasnet0_5"),
    from_torchvision("efficientnet_b0"),
    from_torchvision("vit_b_32", 64, image_size=64),
    from_torchvision("fcn_resnet50", weights_backbone=None),
    from_torchvision("deeplabv3_mobilenet_v3_large", weights_backbone=None),
    from_torchvision("lraspp_mobilenet_v3_large", argument="input", weights_backbone=None),
    video("r3d_18"),
    video("swin3d_t"),
)

CASES = (*TIMM, *TORCHVISION)
