"""Ops of the registry in Python: look-up by name, and registration of new ones."""

from __future__ import annotations

import difflib
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npu_cuda import _C
from npu_cuda.errors import InvalidArgumentError

_CODES = ("i", "I", "q", "Q", "f", "d")  # of the struct module
_MOST_OF_FLOAT32 = 3.4e38
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


@dataclass(frozen=True, slots=True)
class Op:
    """An op of the registry.

    Attributes:
        name: Unique in the process.
        kind: Its number for ``op_call`` and ``Program.add``; it differs between processes.
        schema: The four letters of the schema of its attributes; None where it has none.
    """

    name: str
    kind: int
    schema: str | None

    def attrs(self, **values: float) -> tuple[int, bytes]:
        """Return ``schema_id`` and ``attrs_bytes`` for a call; missing values have their defaults.

        Raises:
            InvalidArgumentError: It has no attribute of this name.
        """
        if self.schema is None:
            if values:
                raise InvalidArgumentError(f"{self.name} has no attributes, not {', '.join(values)}")
            return 0, b""
        from npu_cuda.attributes import attrs

        try:
            return attrs(self.schema, **values)
        except InvalidArgumentError:
            fields = [name for name, _, _ in _C.attr_schemas()[self.schema]["fields"]]
            for name in values:
                if name not in fields:
                    raise InvalidArgumentError(
                        f"{self.name} has no attribute {name!r}{_did_you_mean(name, fields)}; "
                        f"it has {', '.join(fields)}"
                    ) from None
            raise


def find_op(name: str) -> Op:
    """Return the op of this name, from npu-cuda, a library or Python.

    Look it up once and call it often: ``op_call(op.kind, inputs, outputs, *op.attrs(...))``.

    Raises:
        InvalidArgumentError: There is no such op.
    """
    ops = {each["name"]: each for each in _C.ops()}
    if name not in ops:
        raise InvalidArgumentError(
            f"there is no op {name!r}{_did_you_mean(name, ops)}; npu_cuda.kinds() lists them, "
            "npu_cuda.load_plugins() loads the libraries of installed packages, npu_cuda.load_library a "
            "file, and npu_cuda.op adds an op"
        )
    return Op(name, int(ops[name]["kind"]), ops[name]["schema"])


def op(
    name: str,
    *,
    inputs: int | tuple[int, int],
    outputs: int,
    in_place: Mapping[int, int | Iterable[int]] | None = None,
    attrs: Sequence[tuple[str, str, float]] = (),
    attrs_required: bool = False,
    schema: str | None = None,
) -> Op:
    """Register an op; `npu_cuda.kernel` or a library adds kernels to it.

    One that Python has registered in the same way is returned: a cell of a notebook can run again.

    Args:
        name: "acme.softmax"; unique in the process.
        inputs: Their number, or the minimum and maximum.
        outputs: Their number.
        in_place: By output, the input or inputs that it may alias. No output overlaps any other input.
        attrs: Name, letter of the struct module (one of i I q Q f d) and default of each attribute.
        attrs_required: Every call must pass the attributes.
        schema: Four letters that identify its attributes among those of all ops; None: derived from the name.

    Raises:
        InvalidArgumentError: The name or the schema is taken, by an op that differs, or a count, letter or
            index is invalid.
    """
    least, most = (inputs, inputs) if isinstance(inputs, int) else inputs
    if outputs < 1:
        raise InvalidArgumentError(f"the op {name} has {outputs} outputs; 1 to 8 are possible")
    masks = [0] * outputs
    for output, allowed in (in_place or {}).items():
        if not 0 <= output < outputs:
            raise InvalidArgumentError(f"the op {name}: in_place names output {output} of {outputs}")
        masks[output] = _mask((allowed,) if isinstance(allowed, int) else allowed, most, name)
    letters = _schema_letters(name, schema) if attrs else ""
    fields = [_field(name, item) for item in attrs]
    places = [(output, index) for output, mask in enumerate(masks) for index in range(mask.bit_length())]
    pairs = [(output, index) for output, index in places if masks[output] >> index & 1]
    declared = {
        "inputs": (least, most),
        "outputs": outputs,
        "in_place": pairs,
        "attrs": [_stored(*item) for item in fields],
        "attrs_required": attrs_required,
        "schema": letters or None,
    }
    if (known := _op_of_python(name, declared)) is not None:
        return known
    kind = _C.register_op(name, least, most, masks, letters, fields, attrs_required)
    return Op(name, kind, letters or None)


def _op_of_python(name: str, declared: Mapping[str, Any]) -> Op | None:
    """Return the op that Python has registered by this name; None if there is none.

    Raises:
        InvalidArgumentError: It was declared otherwise.
    """
    info = next((each for each in _C.ops() if each["name"] == name and each["origin"] == "Python"), None)
    if info is None:
        return None
    fields = [] if info["schema"] is None else _C.attr_schemas()[info["schema"]]["fields"]
    there = {**info, "attrs": [_stored(*item) for item in fields]}
    for part, value in declared.items():
        if there[part] != value:
            raise InvalidArgumentError(
                f"the op {name} is there already, with {part}={there[part]!r}, not {value!r}: give the new "
                "one another name"
            )
    return Op(name, info["kind"], info["schema"])


def _stored(field: str, code: str, default: float) -> tuple[str, str, float]:
    """Return a field with its default as the native part has it, if its code can hold it."""
    if code == "f" and abs(default) < _MOST_OF_FLOAT32:
        (default,) = struct.unpack("<f", struct.pack("<f", default))
    return field, code, default


def _field(name: str, item: Any) -> tuple[str, str, float]:
    """Return an attribute with its default as a double."""
    if not isinstance(item, (tuple, list)) or len(item) != 3 or not isinstance(item[0], str):
        raise InvalidArgumentError(f"the op {name}: an attribute is (name, code, default), not {item!r}")
    field, code, default = item
    if code not in _CODES:
        raise InvalidArgumentError(
            f"the op {name}: attribute {field}: code {code!r} is none of {' '.join(_CODES)}"
        )
    if not isinstance(default, (int, float)):
        raise InvalidArgumentError(f"the op {name}: the default of {field} is {default!r}, not a number")
    return field, code, _as_double(name, field, default)


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    # npu_ir has a function for this, but npu_cuda works without it.
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _as_double(name: str, field: str, default: float) -> float:
    if isinstance(default, int) and int(float(default)) != default:
        raise InvalidArgumentError(
            f"the op {name}: the default of {field} is {default}, which is not exact as a double; "
            "use 0 for it, and attrs_required=True"
        )
    return float(default)


def _mask(inputs: Iterable[int], most: int, name: str) -> int:
    mask = 0
    for index in inputs:
        if not 0 <= index < most:
            raise InvalidArgumentError(f"the op {name}: in_place names input {index} of {most}")
        mask |= 1 << index
    return mask


def _schema_letters(name: str, schema: str | None) -> str:
    if schema is not None:
        if len(schema) != 4 or not schema.isascii():
            raise InvalidArgumentError(f"the op {name}: schema is {schema!r}, not four letters")
        return schema
    number = zlib.crc32(name.encode())
    return "".join(_LETTERS[number // 36**place % 36] for place in range(4))
