"""Packing of attributes."""

from __future__ import annotations

import struct

import pytest

import npu_cuda


@pytest.mark.parametrize("name", sorted(npu_cuda.attr_schemas()))
def test_ids_and_formats_agree_with_the_native_part(name: str) -> None:
    schema = npu_cuda.attr_schemas()[name]

    assert schema["id"] == int.from_bytes(name.encode(), "little")
    assert struct.calcsize(schema["format"]) == schema["bytes"]
    assert schema["format"] == "<" + "".join(code for _, code, _ in schema["fields"])
    defaults = [default for _, _, default in schema["fields"]]
    assert npu_cuda.attrs(name) == (schema["id"], struct.pack(schema["format"], *defaults))


def test_fields_are_packed_in_order() -> None:
    assert npu_cuda.attrs("GEMM", tb=1, alpha=2) == (0x4D4D4547, struct.pack("<iiiff", 0, 1, 0, 2.0, 0.0))


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
