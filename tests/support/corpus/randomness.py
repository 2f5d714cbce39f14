"""Random numbers: the same seed gives what eager gives."""

from typing import Any

import torch
from torch import nn, rand
from torch.nn import functional as fn

from tests.support.corpus.case import Table, call, floats

CASES = Table(floats((3, 4)))
function, module = CASES.function, CASES.module


module("dropout", lambda: nn.Dropout(0.4), op="aten.dropout.default")
module("dropout_eval", lambda: nn.Dropout(0.4).eval())
module("dropout_inplace", lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.4, inplace=True)))
module("dropout2d_and_alpha",
    lambda: nn.Sequential(nn.Dropout2d(0.3), nn.AlphaDropout(0.3), nn.FeatureAlphaDropout(0.2)),
    floats((2, 3, 2, 2)))  # fmt: skip
module("randomized_relu_training", lambda: nn.RReLU())
function(
    "random_factories",
    lambda x: (torch.rand(3), torch.randn(2, 2), torch.randint(0, 9, (4,)), torch.randperm(5), x),
)
function(
    "random_like",
    lambda x: (torch.rand_like(x), torch.randn_like(x), torch.randint_like(x, 5), x.new_empty(3).uniform_()),
)
function("bernoulli", lambda p: (torch.bernoulli(p), p.bernoulli(), torch.bernoulli(p, 0.3)),
    lambda: call(rand(3, 4)))  # fmt: skip
function(
    "bernoulli_in_place", lambda x: (x.clone().bernoulli_(0.3), x.clone().bernoulli_(x.abs().clamp(max=1)))
)
function("multinomial", lambda p: torch.multinomial(p, 2), lambda: call(rand(3, 5)))
function(
    "normal", lambda x: (torch.normal(x, x.abs()), torch.normal(0.0, 1.0, (2,)), x.clone().normal_(1.0, 2.0))
)
function(
    "distributions_in_place",
    lambda x: (
        x.clone().exponential_(),
        x.clone().log_normal_(),
        x.clone().geometric_(0.5),
        x.clone().cauchy_(),
    ),
)
function("poisson_and_gamma", lambda x: (torch.poisson(x.abs()), torch._standard_gamma(x.abs() + 1)))
function("gumbel_softmax", lambda x: fn.gumbel_softmax(x, hard=True))
function("noise_in_order", lambda x: [x + torch.rand(4) for _ in range(3)])
function("unused_random_number_keeps_its_draw", lambda x: (torch.rand(3), x + torch.rand(4))[1])


@CASES.add(holding=lambda: {"linear": nn.Linear(4, 4)})
def stochastic_depth(self: Any, x: Any) -> Any:
    keep = x.new_empty(x.shape[0], 1).bernoulli_(0.5)
    return x + self.linear(x) * keep.div_(0.5)


@CASES.add(holding=lambda: {"linear": nn.Linear(4, 6)})
def reparameterized_sample(self: Any, x: Any) -> Any:
    mean, log_variance = self.linear(x).chunk(2, dim=-1)
    normal = torch.distributions.Normal(mean, (0.5 * log_variance).exp(), validate_args=False)
    return normal.rsample(), normal.log_prob(mean)
