"""Families of `timm` and `torchvision`: the smallest member of each, on small images."""

import functools
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


of_64 = functools.partial(from_timm, img_size=64)
of_224 = functools.partial(from_timm, size=224)
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
    build = lambda: torchvision.models.get_model(name, weights=None)  # noqa: E731
    return Case(name, "torchvision", "video", build, (Input("x", ("batch", 3, 8, 32, 32)),))


TIMM = (
    *map(convolutional, (
        "test_resnet", "resnetv2_18", "regnety_002", "test_byobnet", "mobilenetv2_035",
        "mobilenetv3_small_050", "lcnetv2_small", "ghostnet_050", "repghostnet_050", "starnet_s050",
        "test_convnext", "inception_next_atto", "test_mambaout", "fasternet_t0", "hgnetv2_b0",
        "ese_vovnet19b_slim_dw", "dla46_c", "cs3darknet_focus_s", "cspnext_tiny", "densenet121", "dpn48b",
        "test_nfnet", "legacy_seresnet18", "skresnet18", "resnest14d", "res2net50_14w_8s", "rexnet_100",
        "hrnet_w18_small", "convmixer_768_32", "poolformer_s12", "repvit_m0_9",
    )),
    convolutional("shvit_s1", LARGE),
    convolutional("efficientvim_m1", LARGE),
    *map(convolutional, ("edgenext_xx_small", "efficientvit_b0", "fastvit_t8", "iformer_t", "pvt_v2_b0")),
    *map(from_timm, ("davit_tiny", "focalnet_tiny_srf", "nextvit_small")),
    *map(convolutional, ("rdnet_tiny", "lowformer_b0", "cpubone_nano")),
    convolutional("selecsls42", LARGE),
    *map(of_64, ("test_vit", "test_vit_relpos", "deit_tiny_patch16_224")),
    from_timm("eva02_tiny_patch14_224", 56, img_size=56),
    from_timm("cait_xxs24_224", img_size=64),
    from_timm("coat_lite_tiny", img_size=64),
    from_timm("crossvit_tiny_240", 240),
    *map(of_224, (
        "efficientformer_l1", "efficientformerv2_s0", "efficientvit_m0", "gcvit_xxtiny", "hiera_tiny_224",
        "levit_128s",
    )),
    *map(of_64, ("maxvit_pico_rw_256", "gmlp_ti16_224", "nest_tiny", "pit_ti_224")),
    from_timm("swiftformer_xs", 64),
    from_timm("swin_tiny_patch4_window7_224", 64, img_size=64, window_size=4),
    from_timm("swinv2_tiny_window8_256", 64, img_size=64, window_size=4),
    from_timm("swinv2_cr_tiny_224", 64, img_size=64),
    from_timm("sequencer2d_s", 64),
    from_timm("tiny_vit_5m_224", 64),
    *map(of_64, (
        "tnt_s_patch16_224", "twins_svt_small", "visformer_tiny", "vit_tiny_r_s16_p8_224",
        "vitamin_small_224", "volo_d1_224", "xcit_nano_12_p16_224",
    )),
)  # fmt: skip

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
