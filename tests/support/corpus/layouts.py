"""Complex numbers and Fourier transforms, sizes of nothing and of floats((3, 4)), memory layouts."""

import torch
from torch import nn, randn

from tests.support.corpus.case import Table, call, floats

CASES = Table(floats((3, 4)))
function, module = CASES.function, CASES.module


# Complex numbers and Fourier transforms

function("complex_parts", lambda x: (x.real, x.imag, x.abs(), x.angle(), x.conj() * 2),
    lambda: call(randn(3, dtype=torch.complex64)))  # fmt: skip
function("complex_views",
    lambda x: torch.view_as_complex(torch.view_as_real(x) * 2) + torch.polar(x.abs(), x.angle()),
    lambda: call(randn(3, dtype=torch.complex64)))  # fmt: skip
function("returns_lazy_conjugate", lambda x: (x.conj(), x.conj().imag, x.mH),
    lambda: call(randn(2, 2, dtype=torch.complex64)))  # fmt: skip
function("complex_scalar", lambda x: x * (1 + 2j) - 3j)
function(
    "fft",
    lambda x: (torch.fft.fft(x), torch.fft.rfft(x, norm="ortho"), torch.fft.irfft(torch.fft.rfft(x), n=4)),
)
function("fft2_shifted", lambda x: torch.fft.fftshift(torch.fft.ifft2(torch.fft.fft2(x, dim=(0, 1)))).real)

# Sizes of nothing and of one

function("zero_dim", lambda x: (x + 1, x[None], x.view(1, 1), x.sum(), torch.stack([x, x])),
    lambda: call(randn(())))  # fmt: skip
function(
    "empty", lambda x: (x + 1, x.sum(), x.sum(0), torch.cat([x, x]), x.view(3, 0), x @ x.mT), floats((0, 3))
)
function("empty_made_in_forward", lambda x: torch.cat([torch.empty(0, 4), x, torch.zeros(0, 4)]))
function("empty_slices", lambda x: (x[2:2], x[:, 4:], x[5:].mean(1)))
module("empty_batch", lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 2)),
    floats((0, 2, 4, 4)))  # fmt: skip
function("ones_everywhere", lambda x: x.squeeze() + x.view(1, 1, 1) + x.reshape(()), floats((1, 1)))
function("large_rank", lambda x: x.permute(6, 5, 4, 3, 2, 1, 0).flatten(2, 4), floats((1, 2, 1, 2, 1, 2, 2)))

# Layouts

module("channels_last_model", lambda: nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last),
    lambda: call(randn(2, 3, 5, 5).to(memory_format=torch.channels_last)))  # fmt: skip
function("channels_last_made_in_forward",
    lambda x: x.to(memory_format=torch.channels_last).add(1).contiguous(memory_format=torch.channels_last),
    floats((2, 3, 4, 4)))  # fmt: skip
function("preserved_format", lambda x: (torch.empty_like(x).fill_(1), x.T.clone(), torch.zeros_like(x.T)))
function("as_strided", lambda x: x.as_strided((2, 2), (1, 4), 2) + torch.as_strided(x, (2, 2), (0, 1)))
function("unfolded_windows", lambda x: x.unfold(1, 3, 1).mean(-1))
function("branch_on_layout", lambda x: x * 2 if x.is_contiguous() else x * 3, lambda: call(randn(3, 4).T))
function("view_of_transposed_input", lambda x: x.view(-1), lambda: call(randn(3, 4).T.contiguous()))
