"""Shared libraries of kernels: all that one offers is taken, or nothing, and the refusal says why."""

import ctypes
import shutil
from pathlib import Path

import pytest
import torch

import npu_cuda
from npu_cuda import _C
from npu_cuda.errors import InvalidArgumentError, UnavailableError
from tests.support.cuda.c_structs import (
    Kernel,
    Library,
    Offer,
    Op,
    compile_kernel_library,
    compile_library,
    scale_attrs,
)
from tests.support.cuda.programs import refused

KEPT: list[object] = []  # memory that libraries point to


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> Offer:
    """A library that tests spoil, and that is never taken."""
    path = tmp_path_factory.mktemp("library") / "spoiled.so"
    return Offer(compile_kernel_library(path, "spoiled", "S"))


def kernel_ids() -> set[str]:
    return {kernel["id"] for kernel in _C.kernels()}


def assert_refused(path: object, match: str, error: type[Exception] = InvalidArgumentError) -> None:
    ops, kernels = _C.kinds(), kernel_ids()

    with refused(match, error):
        npu_cuda.load_library(path)

    assert _C.kinds() == ops
    assert kernel_ids() == kernels
    assert str(path) not in [library["path"] for library in npu_cuda.libraries()]


GEMM = int.from_bytes(b"GEMM", "little")

# What is wrong, and what the refusal says.
SPOILED: list[tuple[dict[str, object], str]] = [
    ({"library.abi_major": 7}, r"version 7\.1 of npu_cuda/kernel.h, this npu-cuda has version 1\.1: build"),
    ({"library.abi_minor": 9}, r"version 1\.9 of .*, this npu-cuda has version 1\.1: install a newer"),
    ({"library.struct_size": 16}, "struct_size of the library is 16, not a multiple of 8 of at least 44"),
    ({"library.name": None}, "its name is NULL"),
    ({"library.name": b""}, "its name is empty"),
    ({"library.name": b"x" * 256}, "its name has more than 255 characters"),
    ({"library.name": b"two words"}, "its name has characters other than printable ASCII"),
    ({"library.ops": None}, "its ops are NULL, and there are 1"),
    ({"library.kernels": None}, "its kernels are NULL, and there are 2"),
    ({"library.num_kernels": 70000}, "it has 70000 kernels"),
    ({"library.num_ops": 0, "library.num_kernels": 0}, "it has neither ops nor kernels"),
    ({"op.struct_size": 64}, "struct_size of op 0 is 64, not a multiple of 8 of at least 120: set it"),
    ({"first.struct_size": 0}, "struct_size of kernel 0 is 0, not a multiple of 8 of at least 96"),
    ({"first.struct_size": 97}, "struct_size of kernel 0 is 97, not a multiple of 8"),
    ({"first.struct_size": 1 << 20}, "struct_size of kernel 0 is 1048576"),
    ({"second.struct_size": 104}, "struct_size of kernel 1 is 104, that of kernel 0 is 96"),
    ({"op.name": None}, "the name of op 0 is NULL"),
    ({"op.name": b"Copy", "first.op": b"Copy"}, r"op Copy of spoiled \(.* there already, from npu-cuda"),
    ({"op.num_outputs": 0, "op.in_place": (ctypes.c_uint64 * 8)()}, "op spoiled.scale .*no proper counts"),
    ({"op.num_outputs": 9}, "op spoiled.scale .*no proper counts of inputs and outputs"),
    ({"op.min_inputs": 2}, "op spoiled.scale .*no proper counts of inputs and outputs"),
    ({"op.in_place": (ctypes.c_uint64 * 8)(2)}, "op spoiled.scale: its in_place of output 0 names what"),
    ({"op.in_place": (ctypes.c_uint64 * 8)(1, 0, 0, 1)}, "its in_place of output 3 names what there is not"),
    ({"op.input_lists": 2}, "its input_lists or output_lists are more than its inputs or outputs"),
    ({"op.output_lists": -1}, "its input_lists or output_lists are more than its inputs or outputs"),
    ({"op.input_lists": 1, "op.max_inputs": 2}, "without a list as output it has a fixed number of inputs"),
    ({"op.schema_id": 0}, "op spoiled.scale: it has attributes, and no schema_id: use NPU_FOURCC"),
    ({"op.schema_id": 0, "op.attr_bytes": 0, "op.num_attr_fields": 0, "op.attrs_required": 1},
     "it has attributes, and no schema_id"),
    ({"op.schema_id": 17}, "its schema_id 17 is not of four letters"),
    ({"op.schema_id": GEMM}, "the attribute schema GEMM of spoiled.scale is that of Gemm"),
    ({"op.attr_bytes": 0}, "its attr_bytes are 0; 1 to 4096 are possible"),
    ({"op.attr_fields": None}, "its attr_fields are NULL"),
    ({"op.num_attr_fields": 13}, "it has more attr_fields than bytes of them"),
    ({"op.num_attr_fields": 2}, "its attr_fields have 8 bytes, attr_bytes says 12: they lie without padding"),
    ({"field.code": b"z"}, "the code of the attribute code is character 122, none of i I q Q f d"),
    ({"field.name": None}, "the name of attribute 1 is NULL"),
    ({"first.kernel_id": None}, "the kernel_id of kernel 0 is NULL"),
    ({"second.kernel_id": b"relu.f32.host"}, r"relu.f32.host of spoiled \(.* there already, from npu-cuda"),
    ({"second.kernel_id": b"spoiled.scale.host"}, r"spoiled.scale.host of .* there already, from spoiled \("),
    ({"first.op": None}, "the op of the kernel spoiled.scale.host is NULL"),
    ({"first.op": b"Frobnicate"}, "spoiled.scale.host: its op Frobnicate is neither one of npu_cuda.ops"),
    ({"second.supported": None}, "kernel spoiled.relu.cuda: its function supported is NULL"),
    ({"first.launch": None}, "kernel spoiled.scale.host: its function launch is NULL"),
    ({"first.prepare": None}, "kernel spoiled.scale.host: it has release, and no prepare"),
    ({"first.device_type": 9}, r"spoiled.scale.host: its device_type is 9; NPU_CPU \(1\) and NPU_CUDA \(2\)"),
    ({"second.flags": 67}, "kernel spoiled.relu.cuda: its flags are 0x43; 0x3 are known"),
    ({"second.min_compute_capability": 120}, "spoiled.relu.cuda: it is for compute capability 120 to 99"),
]  # fmt: skip


def test_a_library_with_one_mistake_is_refused_as_a_whole(spoiled: Offer) -> None:
    parts = {"library": spoiled.library, "op": spoiled.ops[0], "field": spoiled.fields[1]}
    parts["first"], parts["second"] = spoiled.kernels
    saved = spoiled.saved()
    for changes, match in SPOILED:
        for place, value in changes.items():
            part, name = place.split(".")
            setattr(parts[part], name, value)

        assert_refused(spoiled.path, match)

        spoiled.restore(saved)
    spoiled.offered.value = None

    assert_refused(spoiled.path, "library_v1 returned NULL: the library cannot be used", UnavailableError)


def test_a_path_that_is_no_library_is_refused(tmp_path: Path) -> None:
    text, lacking, plain = tmp_path / "text.so", tmp_path / "lacking.c", tmp_path / "plain.c"
    text.write_text("not ELF")
    lacking.write_text("int absent(void);\nint present(void);\nint present(void) { return absent(); }\n")
    plain.write_text("int present = 1;\n")

    assert_refused(tmp_path / "none.so", "the library .*none.so: there is no such file: No such file")
    assert_refused(tmp_path, "it is not a file")
    assert_refused(text, "it cannot be loaded: .*text.so: (file too short|invalid ELF header)")
    assert_refused(
        compile_library(lacking, tmp_path / "lacking.so", "-fvisibility=default"),
        "it cannot be loaded: .*undefined symbol: absent",
    )
    assert_refused(compile_library(plain, tmp_path / "plain.so"), "it does not export npu_kernel_library_v1")


def test_a_path_must_be_a_path() -> None:
    with pytest.raises(TypeError, match="expected str, bytes or os.PathLike object, not int"):
        npu_cuda.load_library(3)
    with pytest.raises(ValueError, match="embedded null byte"):
        npu_cuda.load_library("a\0b")


def test_a_library_is_loaded_once_and_what_it_brings_is_listed_with_its_origin(tmp_path: Path) -> None:
    path = compile_kernel_library(tmp_path / "once.so", "loaded", "L")
    copy, link = shutil.copy(path, tmp_path / "copy.so"), tmp_path / "link.so"
    link.symlink_to(path)

    info = npu_cuda.load_library(path)

    assert (info["name"], info["path"], info["ops"]) == ("loaded", str(path), ["loaded.scale"])
    assert info["kernels"] == ["loaded.scale.host", "loaded.relu.cuda"]
    assert info in npu_cuda.libraries()
    for again, text in (
        (str(path), "once.so: it is loaded already"),
        (link, "link.so: it is loaded already"),
        (copy, "copy.so: a library called loaded is loaded already, from .*once.so"),
    ):
        with refused(text):
            npu_cuda.load_library(again)
    op = next(op for op in _C.ops() if op["name"] == "loaded.scale")
    assert op["kind"] >= 1000
    assert (op["inputs"], op["outputs"], op["in_place"], op["schema"]) == ((1, 1), 1, [(0, 0)], "LLSC")
    assert _C.attr_schemas()["LLSC"] == {
        "id": int.from_bytes(b"LLSC", "little"), "format": "<fii", "bytes": 12, "is_open": False,
        "fields": [("alpha", "f", 1.0), ("code", "i", 0), ("silent", "i", 0)],
    }  # fmt: skip
    kernel = next(kernel for kernel in _C.kernels() if kernel["id"] == "loaded.relu.cuda")
    assert (kernel["op"], kernel["device"], kernel["priority"]) == ("EltwiseRelu", "cuda", -5)
    assert kernel["flags"] == ["deterministic"]
    assert op["origin"] == kernel["origin"] == f"loaded ({path})"


def test_structs_of_a_later_header_are_read_by_their_size(tmp_path: Path) -> None:
    class LaterKernel(ctypes.Structure):
        _fields_ = (("kernel", Kernel), ("more", ctypes.c_uint64 * 2))

    class LaterOp(ctypes.Structure):
        _fields_ = (("op", Op), ("more", ctypes.c_uint64 * 3))

    offer = Offer(compile_kernel_library(tmp_path / "later.so", "later", "T"))
    kernels, ops = (LaterKernel * 2)(), (LaterOp * 2)()
    for i in range(2):
        kernels[i].kernel, ops[i].op = offer.kernels[i], offer.ops[0]
        kernels[i].kernel.struct_size = ctypes.sizeof(LaterKernel)
        ops[i].op.struct_size = ctypes.sizeof(LaterOp)
        kernels[i].more[:] = (2**64 - 1,) * 2
    ops[1].op.name, ops[1].op.schema_id = b"later.other", int.from_bytes(b"LATR", "little")
    offer.library.ops = ctypes.cast(ops, ctypes.POINTER(Op))
    offer.library.kernels = ctypes.cast(kernels, ctypes.POINTER(Kernel))
    offer.library.num_ops = 2
    offer.library.struct_size = ctypes.sizeof(Library) + 32
    KEPT.extend((kernels, ops))

    info = npu_cuda.load_library(offer.path)

    assert info["ops"] == ["later.scale", "later.other"]
    assert info["kernels"] == ["later.scale.host", "later.relu.cuda"]
    assert {"later.scale", "later.other"} <= _C.kinds().keys()


def test_an_op_of_version_1_0_has_no_lists(tmp_path: Path) -> None:
    offer = Offer(compile_kernel_library(tmp_path / "first.so", "first", "F"))
    offer.library.abi_minor = 0
    offer.ops[0].struct_size = Op.input_lists.offset  # type: ignore[attr-defined]
    offer.ops[0].input_lists = 7

    npu_cuda.load_library(offer.path)

    (op,) = (op for op in _C.ops() if op["name"] == "first.scale")
    assert op["lists"] == (0, 0)


def test_an_op_of_a_library_takes_lists(tmp_path: Path) -> None:
    offer = Offer(compile_kernel_library(tmp_path / "lists.so", "lists", "M"))
    offer.ops[0].input_lists = offer.ops[0].output_lists = 1

    npu_cuda.load_library(offer.path)

    x = [torch.ones(3) for _ in range(100)]
    with pytest.raises(
        InvalidArgumentError, match="of which the last 1 and 1 are lists of one length, .* not 100 and 99"
    ):
        npu_cuda.op_call(npu_cuda.kinds()["lists.scale"], x, x[1:])
    npu_cuda.op_call(npu_cuda.kinds()["lists.scale"], x, x, *scale_attrs("M", 2.0))
    assert x[0].tolist() == [2, 2, 2]  # its kernel looks at the first place alone
