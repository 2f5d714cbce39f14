"""Every dtype, complex numbers and FFT, 0-d and empty tensors, memory layouts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import arange, nn, rand, randn, tensor
from torch.nn import functional as fn

from tests.npu_ir.corpus.case import Call, Table, call

CASES = Table()
function, module = CASES.function, CASES.module


def of(dtype: torch.dtype) -> Callable[[], Call]:
    return lambda: call((randn(3, 4) * 4).to(dtype), (rand(3, 4) * 4 + 1).to(dtype))


def one() -> Call:
    return call(randn(3, 4))


# Dtypes

for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128):
    function(f"arithmetic_{str(dtype)[6:]}", lambda x, y: (x * y + 2, x / y, x.mean(0), x @ y.mT, x.exp()), of(dtype))
for dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8):
    function(f"arithmetic_{str(dtype)[6:]}", lambda x, y: (x * y + 2, x // y, x / y, x.sum(0), x @ y.mT, x.max()), of(dtype))
for dtype in (torch.uint16, torch.uint32, torch.uint64):
    function(f"casts_{str(dtype)[6:]}", lambda x, y: (x.to(torch.float32), x == y, torch.stack([x, y])), of(dtype))
for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz):
    function(f"casts_{str(dtype)[6:]}", lambda x, y, d=dtype: ((x.float() + y.float()).to(d), x.view(torch.uint8), x[1:]), of(dtype))
function("arithmetic_bool", lambda x, y: (x & y, x + y, x.sum(), ~x, x.int() - 1, x.any()), of(torch.bool))
function("arithmetic_complex32", lambda x: x.to(torch.complex32).real + x.imag.half(), lambda: call(randn(3, dtype=torch.complex64)))
function("promotion_between_dtypes", lambda x, y: (x + y, x.half() * y, x.bool() + y, x * 1.5, y * 2), lambda: call(randn(3), arange(3)))
function("promotion_of_zero_dim_tensors", lambda x, s: (x * s, s * x, s + 1j, x.half() * s), lambda: call(randn(3), tensor(2.0, dtype=torch.float64)))
function("bitcasts", lambda x: (x.view(torch.int16), x.view(torch.uint8).view(torch.float32), x.view(torch.complex64)), one)


class Quantized(nn.Module):
    """Weights as int8 with scales, as weight-only quantization stores them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 127, (5, 4), dtype=torch.int8))
        self.register_buffer("scales", rand(5, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return fn.linear(x, self.weight.to(x.dtype)) * self.scales


module("int8_weights", Quantized, lambda: call(randn(2, 4, dtype=torch.bfloat16)))
module("double_model", lambda: nn.Sequential(nn.Linear(4, 3), nn.GELU()).double(), lambda: call(randn(2, 4, dtype=torch.float64)))
module("half_model", lambda: nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)).half(), lambda: call(randn(2, 4).half()))
module("bfloat16_convolution", lambda: nn.Conv2d(2, 3, 3).bfloat16(), lambda: call(randn(1, 2, 5, 5).bfloat16()))
function("fake_quantization", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127), one)
function("quantization_by_hand", lambda x: (x / 0.1).round().clamp(-128, 127).to(torch.int8).float() * 0.1, one)

# Complex numbers and Fourier transforms

function("complex_parts", lambda x: (x.real, x.imag, x.abs(), x.angle(), x.conj() * 2), lambda: call(randn(3, dtype=torch.complex64)))
function("complex_views", lambda x: torch.view_as_complex(torch.view_as_real(x) * 2) + torch.polar(x.abs(), x.angle()), lambda: call(randn(3, dtype=torch.complex64)))
function("returns_lazy_conjugate", lambda x: (x.conj(), x.conj().imag, x.mH), lambda: call(randn(2, 2, dtype=torch.complex64)))
function("complex_scalar", lambda x: x * (1 + 2j) - 3j, one)
function("fft", lambda x: (torch.fft.fft(x), torch.fft.rfft(x, norm="ortho"), torch.fft.irfft(torch.fft.rfft(x), n=4)), one)
function("fft2_shifted", lambda x: torch.fft.fftshift(torch.fft.ifft2(torch.fft.fft2(x, dim=(0, 1)))).real, one)
function("spectrogram", lambda x: torch.stft(x, 8, 4, window=torch.hann_window(8), return_complex=True).abs(), lambda: call(randn(2, 32)))
function("istft", lambda x: torch.istft(torch.stft(x, 8, window=torch.ones(8), return_complex=True), 8, window=torch.ones(8)), lambda: call(randn(32)))

# Sizes of nothing and of one

function("zero_dim", lambda x: (x + 1, x[None], x.view(1, 1), x.sum(), torch.stack([x, x])), lambda: call(randn(())))
function("empty", lambda x: (x + 1, x.sum(), x.sum(0), torch.cat([x, x]), x.view(3, 0), x @ x.mT), lambda: call(randn(0, 3)))
function("empty_made_in_forward", lambda x: torch.cat([torch.empty(0, 4), x, torch.zeros(0, 4)]), one)
function("empty_slices", lambda x: (x[2:2], x[:, 4:], x[5:].mean(1)), one)
module("empty_batch", lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 2)), lambda: call(randn(0, 2, 4, 4)))
function("ones_everywhere", lambda x: x.squeeze() + x.view(1, 1, 1) + x.reshape(()), lambda: call(randn(1, 1)))
function("large_rank", lambda x: x.permute(6, 5, 4, 3, 2, 1, 0).flatten(2, 4), lambda: call(randn(1, 2, 1, 2, 1, 2, 2)))

# Layouts

function("channels_last_input", lambda x: x * 2, lambda: call(randn(2, 3, 4, 4).to(memory_format=torch.channels_last)))
module("channels_last_model", lambda: nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), lambda: call(randn(2, 3, 5, 5).to(memory_format=torch.channels_last)))
function("channels_last_made_in_forward", lambda x: x.to(memory_format=torch.channels_last).add(1).contiguous(memory_format=torch.channels_last), lambda: call(randn(2, 3, 4, 4)))
function("channels_last_3d", lambda x: x.contiguous(memory_format=torch.channels_last_3d) + 1, lambda: call(randn(1, 2, 2, 3, 3)))
function("preserved_format", lambda x: (torch.empty_like(x).fill_(1), x.T.clone(), torch.zeros_like(x.T)), one)
function("as_strided", lambda x: x.as_strided((2, 2), (1, 4), 2) + torch.as_strided(x, (2, 2), (0, 1)), one)
function("unfolded_windows", lambda x: x.unfold(1, 3, 1).mean(-1), one)
function("branch_on_layout", lambda x: x * 2 if x.is_contiguous() else x * 3, lambda: call(randn(3, 4).T))
function("view_of_transposed_input", lambda x: x.view(-1), lambda: call(randn(3, 4).T.contiguous()))


@contextlib.contextmanager
def float64_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


function(
    "captured_under_another_default_dtype",
    lambda x: (torch.ones(2), torch.rand(2), torch.tensor([1.0]), torch.full((2,), 1.5), arange(0, 1, 0.5), torch.eye(2), x, torch.linspace(0, 1, 3), torch.hann_window(4)),
    lambda: call(arange(3)),
    under=float64_default,
)
function("integer_division_under_another_default_dtype", lambda x: (x / 2, x.sqrt(), x * 0.5), lambda: call(arange(3)), under=float64_default)
