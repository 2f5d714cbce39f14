"""Invalid calls of any op, derived from a valid one."""

from __future__ import annotations

from collections.abc import Iterator

from npu_cuda import _C
from npu_cuda.testing.case import Case, Refusal
from npu_cuda.testing.memory import pack_attrs


def misuses(op: str, case: Case) -> Iterator[Refusal]:
    """Yield refusals with wrong counts and wrong attributes.

    Args:
        op: Its name in the registry.
        case: A valid call with the minimum number of inputs.
    """
    info = next(info for info in _C.ops() if info["name"] == op)
    least, most = info["inputs"]
    takes = f"{op} takes {least}"
    inputs, outputs = case.inputs, case.outputs
    if least > 0:
        yield Refusal("an input is missing", inputs[: least - 1], outputs, takes, status="InvalidArgument")
    if info["lists"] == (0, 0) or info["lists"][1]:  # else a list has any length
        too_many = ((inputs or outputs) * (most + 1))[: most + 1]
        yield Refusal("an input too many", too_many, outputs, takes, status="InvalidArgument")
    yield Refusal("no output", inputs, (), takes, status="InvalidArgument")
    yield Refusal("an output too many", inputs, outputs * 2, takes, status="InvalidArgument")
    for name, raw, text in _wrong_attrs(info["schema"]):
        yield Refusal(name, inputs, outputs, text, raw_attrs=raw, status="InvalidArgument")


def _wrong_attrs(schema: str | None) -> Iterator[tuple[str, tuple[int, bytes], str]]:
    unknown = int.from_bytes(b"XXXX", "little")
    if schema is None:
        yield "attributes where there are none", (unknown, b"\0\0\0\0"), "takes no attributes"
        return
    defaults = _C.attr_schemas()[schema]["fields"]
    schema_id, packed = pack_attrs(schema, {name: value for name, _, value in defaults})
    wanted = f"takes attributes of schema {schema}"
    yield "the schema of another op", (unknown, packed), wanted
    yield "attributes that are too short", (schema_id, packed[:-1]), wanted
    yield "attributes that are too long", (schema_id, packed + b"\0"), wanted
    yield "a schema without attributes", (schema_id, b""), wanted
    yield "attributes without a schema", (0, packed), wanted
    swapped = int.from_bytes(schema.encode(), "big")
    yield "the letters of the schema reversed", (swapped, packed), wanted
