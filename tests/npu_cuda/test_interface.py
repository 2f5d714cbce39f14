"""The names of npu_cuda, its errors, and attributes."""

import struct

import pytest

import npu_cuda
from npu_cuda import Program, Status
from tests.support.processes import run_python


def test_the_import_is_light_and_the_native_part_is_loaded_once() -> None:
    light = "assert not {'torch', 'numpy'} & sys.modules.keys();"
    done = run_python(
        f"import sys, npu_cuda; {light} assert 'npu_cuda._C' not in sys.modules; npu_cuda.op_call; {light}"
        "del sys.modules['npu_cuda._C']; import npu_cuda._C"
    )

    assert done.returncode == 1
    assert "ImportError: npu_cuda._C is loaded already, and cannot be imported a second time" in done.stderr


def test_every_name_that_is_exported_is_there() -> None:
    for name in npu_cuda.__all__:
        assert getattr(npu_cuda, name) is not None, name
    assert set(npu_cuda.__all__) <= set(dir(npu_cuda))
    with pytest.raises(AttributeError, match="module 'npu_cuda' has no attribute 'nothing'"):
        _ = npu_cuda.nothing


@pytest.mark.smoke
def test_each_error_has_its_status() -> None:
    cases = [
        ("InvalidArgumentError", Status.InvalidArgument, (ValueError,)),
        ("NotSupportedError", Status.NotImplemented, (NotImplementedError,)),
        ("InternalError", Status.Internal, ()),
        ("DeviceError", Status.DeviceError, (npu_cuda.InternalError,)),
        ("UnavailableError", Status.Unavailable, ()),
    ]  # fmt: skip
    for name, status, bases in cases:
        error = getattr(npu_cuda, name)

        assert error("x").status is status
        assert issubclass(error, (npu_cuda.NpuCudaError, *bases))
        assert issubclass(error, RuntimeError)


@pytest.mark.smoke
@pytest.mark.skipif(not npu_cuda.cuda_absence(), reason="there is a cuda device")
def test_a_device_that_is_not_here_says_why() -> None:
    with pytest.raises(npu_cuda.UnavailableError, match="device 'cuda' is not here"):
        Program("cuda")


def test_ids_and_formats_agree_with_the_native_part() -> None:
    for name, schema in npu_cuda.attr_schemas().items():
        assert schema["id"] == int.from_bytes(name.encode(), "little")
        assert struct.calcsize(schema["format"]) == schema["bytes"]
        assert schema["format"] == "<" + "".join(code for _, code, _ in schema["fields"])
        defaults = [default for _, _, default in schema["fields"]]
        assert npu_cuda.attrs(name) == (schema["id"], struct.pack(schema["format"], *defaults))
    assert npu_cuda.attrs("GEMM", tb=1, alpha=2)[1] == struct.pack("<iiiff", 0, 1, 0, 2.0, 0.0)


def test_a_wrong_field_is_named() -> None:
    cases = [
        ("NONE", {}, npu_cuda.InvalidArgumentError, "attrs: there is no schema 'NONE'; there are .*GEMM"),
        ("GEMM", {"tc": 1}, npu_cuda.InvalidArgumentError, "attrs: GEMM has no field 'tc'; it has ta, tb"),
        ("GEMM", {"ta": 1.0}, TypeError, "attrs: GEMM.ta must be an int, not float"),
        ("GEMM", {"ta": True}, TypeError, "attrs: GEMM.ta must be an int, not bool"),
        ("GEMM", {"alpha": "1"}, TypeError, "attrs: GEMM.alpha must be a number, not str"),
        ("GEMM", {"ta": 1 << 40}, npu_cuda.InvalidArgumentError,
         "attrs: GEMM.ta is 1099511627776, which does not"),
        ("GEMM", {"alpha": 1e300}, npu_cuda.InvalidArgumentError,
         "attrs: GEMM.alpha is 1e.300, which does not fit"),
    ]  # fmt: skip
    for schema, fields, error, text in cases:
        with pytest.raises(error, match=text):
            npu_cuda.attrs(schema, **fields)
