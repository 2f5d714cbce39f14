"""What the benchmark of CUDA kernels measures: functions of PyTorch on tensors, and a few ops without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from cuda_case import FLOAT32, TENSORS, WITH_MIDDLE, Case, Data, Variant, bf16, f32
from host_ops import activations, arithmetic
from torch import Tensor
from torch.nn import functional as F

aten: Any = torch.ops.aten
EPS = 1e-5


def cast(x: Tensor) -> Tensor:
    return x.to(bf16 if x.dtype is f32 else f32)


def square(data: Data) -> tuple[Tensor]:
    side = int(data.count**0.5)
    return (data.normal(side, side),)


POINTWISE = (
    Case("relu", torch.relu, lambda d: (d.normal(),)),
    Case("gelu", F.gelu, lambda d: (d.normal(),)),
    Case("gelu, gradient", aten.gelu_backward, lambda d: (d.normal(), d.normal())),
    Case("add", torch.add, lambda d: (d.normal(), d.normal())),
    Case("mul by a row", torch.mul, lambda d: (d.rows(), d.row())),
    Case("cast f32 / bf16", cast, lambda d: (d.normal(),)),
    Case("where", torch.where, lambda d: (d.normal() > 0, d.normal(), d.normal())),
    Case("copy, transposed", lambda x: x.t().contiguous(), square),
    Case("chain of 8, arithmetic", arithmetic, lambda d: (d.normal(), d.normal())),
    Case("chain of 8, activations", activations, lambda d: (d.normal(), d.normal())),
)

REDUCTIONS = (
    Case("sum of all", torch.sum, lambda d: (d.normal(),)),
    Case("amax of all", torch.amax, lambda d: (d.normal(),)),
    Case("sum, last axis", lambda x: x.sum(-1), lambda d: (d.rows(),)),
    Case("mean, first axis", lambda x: x.mean(0), lambda d: (d.rows(),)),
    Case("amax, last axis", lambda x: x.amax(-1), lambda d: (d.rows(),)),
    Case("amax, first axis", lambda x: x.amax(0), lambda d: (d.rows(),)),
    Case("var, last axis", lambda x: x.var(-1), lambda d: (d.rows(),), FLOAT32),
    Case("argmax, last axis", lambda x: x.argmax(-1), lambda d: (d.rows(),), FLOAT32),
    Case("cumsum, last axis", lambda x: x.cumsum(-1), lambda d: (d.rows(),), FLOAT32),
)


def add_norm_gelu(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(F.layer_norm(x + y, x.shape[-1:], weight, bias))


def rms_norm_by_ops(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * weight


def layer_norm_inputs(d: Data) -> tuple[Tensor, ...]:
    x, weight, bias = d.rows(), d.row(), d.row()
    _, mean, rstd = aten.native_layer_norm(x, x.shape[-1:], weight, bias, EPS)
    return d.rows(), x, mean, rstd, weight, bias


def layer_norm_gradient(grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, w: Tensor, b: Tensor) -> Any:
    return aten.native_layer_norm_backward(grad, x, x.shape[-1:], mean, rstd, w, b, [True] * 3)


def rms_norm_inputs(d: Data) -> tuple[Tensor, ...]:
    x = d.rows()
    return d.rows(), x, (x.float().square().mean(-1, keepdim=True) + EPS).rsqrt(), d.row()


def rms_norm_gradient(grad: Tensor, x: Tensor, rstd: Tensor, weight: Tensor) -> Any:
    return aten._fused_rms_norm_backward(grad, x, x.shape[-1:], rstd, weight, [True, True])


def softmax_inputs(d: Data) -> tuple[Tensor, ...]:
    return d.rows(), torch.softmax(d.rows(), -1)


def nll_gradient(grad: Tensor, logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    return aten.nll_loss_backward(grad, logits, target, None, 1, -100, weight)


def nll_inputs(d: Data) -> tuple[Tensor, ...]:
    weight = torch.tensor(float(d.height), device=d.device).to(d.dtype)
    return d.uniform(), d.rows(), d.integers(d.width, d.height), weight


ROWS = (
    Case("softmax", lambda x: torch.softmax(x, -1), lambda d: (d.rows(),)),
    Case("softmax, first axis", lambda x: torch.softmax(x, 0), lambda d: (d.rows(),), FLOAT32),
    Case("softmax, gradient", lambda g, y: aten._softmax_backward_data(g, y, -1, y.dtype), softmax_inputs),
    Case("log-softmax", lambda x: torch.log_softmax(x, -1), lambda d: (d.rows(),)),
    Case(
        "log-softmax, gradient", lambda g, y: aten._log_softmax_backward_data(g, y, -1, y.dtype),
        softmax_inputs
    ),
    Case(
        "layer norm", lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
        lambda d: (d.rows(), d.row(), d.row())
    ),
    Case("layer norm, gradient", layer_norm_gradient, layer_norm_inputs),
    Case("RMS norm", lambda x, w: F.rms_norm(x, x.shape[-1:], w, EPS), lambda d: (d.rows(), d.row())),
    Case("RMS norm, gradient", rms_norm_gradient, rms_norm_inputs),
    Case("RMS norm by ops", rms_norm_by_ops, lambda d: (d.rows(), d.row())),
    Case(
        "add, layer norm, gelu", add_norm_gelu, lambda d: (d.rows(), d.rows(), d.row(), d.row())
    ),
    Case(
        "group norm", lambda x, w, b: F.group_norm(x, 4, w, b),
        lambda d: (d.images(), d.normal(16), d.normal(16))
    ),
    Case("cross-entropy", F.cross_entropy, lambda d: (d.rows(), d.integers(d.width, d.height))),
    Case("negative log-likelihood, gradient", nll_gradient, nll_inputs),
)  # fmt: skip


def batch_norm_train(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Any:
    return aten._native_batch_norm_legit_functional(x, w, b, mean, var, True, 0.1, EPS)


def batch_norm_eval(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return F.batch_norm(x, mean, var, w, b)


def batch_norm_gradient(grad: Tensor, x: Tensor, w: Tensor, mean: Tensor, rstd: Tensor) -> Any:
    return aten.native_batch_norm_backward(grad, x, w, None, None, mean, rstd, True, EPS, [True] * 3)


def channels(d: Data, count: int) -> tuple[Tensor, ...]:
    return tuple(torch.rand(16, device=d.device).add_(0.5) for _ in range(count))


BATCH_NORM = (
    Case("batch norm, training", batch_norm_train, lambda d: (d.images(), *channels(d, 4))),
    Case("batch norm, evaluation", batch_norm_eval, lambda d: (d.images(), *channels(d, 4))),
    Case(
        "batch norm, gradient", batch_norm_gradient, lambda d: (d.images(), d.images(), *channels(d, 3)),
        WITH_MIDDLE
    ),
)  # fmt: skip


def embedding_gradient(grad: Tensor, indices: Tensor) -> Tensor:
    return aten.embedding_dense_backward(grad, indices, grad.shape[0], -1, False)


INDEX = (
    Case("embedding", lambda table, i: F.embedding(i, table), Data.table),
    Case("embedding, gradient", embedding_gradient, Data.table),
    Case("index_select", lambda x, i: x.index_select(0, i), Data.table),
    Case(
        "gather", lambda x, i: x.gather(-1, i),
        lambda d: (d.rows(), d.integers(d.width, d.height, d.width))
    ),
    Case(
        "scatter_add", lambda x, i, y: x.scatter_add(-1, i, y),
        lambda d: (d.rows(), d.integers(d.width, d.height, d.width), d.rows()), WITH_MIDDLE
    ),
    Case("cat, last axis", lambda x, y: torch.cat([x, y], -1), lambda d: (d.rows(), d.rows())),
    Case("tril", torch.tril, square, FLOAT32),
    Case("sort, last axis", lambda x: torch.sort(x, stable=True), lambda d: (d.rows(),), WITH_MIDDLE),
)  # fmt: skip


def parts(tensors: tuple[Tensor, ...]) -> Iterator[list[Tensor]]:
    for start in range(0, len(tensors) - TENSORS + 1, TENSORS):
        yield list(tensors[start : start + TENSORS])


ADAM = {
    "lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8, "amsgrad": False,
    "maximize": False,
}  # fmt: skip
SGD = {
    "weight_decay": 0.01, "momentum": 0.9, "lr": 1e-3, "dampening": 0.0, "nesterov": False, "maximize": False,
    "is_first_step": False,
}  # fmt: skip


def adam(*tensors: Tensor) -> Any:
    params, grads, means, squares, steps = parts(tensors)
    results = aten._fused_adam(params, grads, means, squares, [], steps, **ADAM)
    return [*results[0], *results[2], *results[3]]


def adam_in_place(*tensors: Tensor) -> None:
    params, grads, means, squares, steps = parts(tensors)
    aten._fused_adam_(params, grads, means, squares, [], steps, **ADAM)


def adam_inputs(d: Data) -> tuple[Tensor, ...]:
    return *d.lists(4), *(torch.tensor(3.0, device=d.device) for _ in range(TENSORS))


def sgd(*tensors: Tensor) -> Any:
    results = aten._fused_sgd(*parts(tensors), **SGD)
    return [*results[0], *results[2]]


def sgd_in_place(*tensors: Tensor) -> None:
    aten._fused_sgd_(*parts(tensors), **SGD)


def global_norm(*tensors: Tensor) -> Tensor:
    return torch.stack(torch._foreach_norm(tensors)).norm()


LISTS = (
    Case("Adam, 64 tensors", adam, adam_inputs, FLOAT32, adam_in_place),
    Case("SGD with momentum, 64 tensors", sgd, lambda d: d.lists(3), FLOAT32, sgd_in_place),
    Case("global norm, 64 tensors", global_norm, lambda d: d.lists(1), FLOAT32, kind="GlobalNorm"),
)


def pool_gradient(grad: Tensor, x: Tensor, indices: Tensor) -> Tensor:
    return aten.max_pool2d_with_indices_backward(grad, x, [2, 2], [2, 2], [0, 0], [1, 1], False, indices)


def pool_inputs(d: Data) -> tuple[Tensor, ...]:
    x = d.images()
    y, indices = F.max_pool2d(x, 2, return_indices=True)
    return torch.rand_like(y), x, indices


POOLS = (
    Case("max_pool2d", lambda x: F.max_pool2d(x, 2), lambda d: (d.images(),)),
    Case("max_pool2d, gradient", pool_gradient, pool_inputs, FLOAT32),
    Case("avg_pool2d, 3 x 3", lambda x: F.avg_pool2d(x, 3, 1, 1), lambda d: (d.images(),)),
    Case("adaptive_avg_pool2d to 1", lambda x: F.adaptive_avg_pool2d(x, 1), lambda d: (d.images(),)),
    Case("nearest, doubled", lambda x: F.interpolate(x, scale_factor=2.0), lambda d: (d.images(16, 16),)),
    Case(
        "bilinear, doubled", lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        lambda d: (d.images(16, 16),)
    ),
)  # fmt: skip


def dropout_inputs(d: Data) -> tuple[Tensor, ...]:
    return d.normal(), d.integers(1 << 31), d.integers(1 << 31)


RANDOM = (
    Case(
        "dropout", lambda x, *_: torch.native_dropout(x, 0.25, True), dropout_inputs, kind="Dropout",
        attrs=("DROP", {"p": 0.25}), is_random=True
    ),
)  # fmt: skip


def matrices(d: Data) -> tuple[Tensor, Tensor]:
    return d.normal(d.count, d.count), d.normal(d.count, d.count)


def weighted_sum(d: Data) -> tuple[Tensor, Tensor]:
    return d.normal(1, d.count), d.normal(d.count, d.count)


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(F.linear(x, weight, bias))


SIDES: tuple[Variant, ...] = ((512, f32), (1024, f32), (4096, f32), (4096, bf16))
PRODUCTS = (
    Case("mm", torch.mm, matrices, SIDES),
    Case("mm, right transposed", lambda a, b: a @ b.t(), matrices, ((1024, f32), (4096, f32))),
    Case("mm, left transposed", lambda a, b: a.t() @ b, matrices, ((1024, f32), (4096, f32))),
    Case("row by matrix", torch.mm, weighted_sum, ((1024, f32), (8192, f32), (8192, bf16))),
    Case("row by transposed", F.linear, weighted_sum, ((1024, f32), (8192, f32), (8192, bf16))),
    Case(
        "bmm, 64 products", torch.bmm,
        lambda d: (d.normal(64, d.count, d.count), d.normal(64, d.count, d.count)), ((64, f32), (512, f32))
    ),
    Case("linear, relu", linear_relu, lambda d: (*matrices(d), d.normal(d.count)), ((1024, f32),)),
)  # fmt: skip

CASES = (
    *POINTWISE, *REDUCTIONS, *ROWS, *BATCH_NORM, *INDEX, *LISTS, *POOLS, *RANDOM, *PRODUCTS,
)  # fmt: skip
