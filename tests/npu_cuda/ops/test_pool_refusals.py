"""What pools on a GPU do not take, though those of the host do."""

import npu_cuda
from npu_cuda import TensorSpec
from tests.support.emulator.module import needs_emulator


@needs_emulator
def test_a_window_on_cuda_reaches_over_less_than_two_to_the_31_elements() -> None:
    kind, x, y = (
        npu_cuda.kinds()["Resample"],
        TensorSpec("float32", [1, 1, 9]),
        TensorSpec("float32", [1, 1, 1]),
    )
    attrs = npu_cuda.attrs("RSMP", axes=1, kernel_w=2**31 - 1, stride_w=1)

    on_host = npu_cuda.select(kind, [x], [y], *attrs)
    on_cuda = npu_cuda.select(kind, [x], [y], *attrs, device="cuda")

    assert on_host.kernel_id == "resample.f32.host"
    reason = "a window and its padding reach over 2^31 elements or more"
    assert dict(on_cuda.refusals)["resample.f32.cuda"] == reason
