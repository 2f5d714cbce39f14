"""Ops of the registry in Python: look-up by name, and registration of new ones."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from npu_cuda import _C
from npu_cuda.errors import InvalidArgumentError

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

        return attrs(self.schema, **values)


def find_op(name: str) -> Op:
    """Return the op of this name, from npu-cuda, a library or Python.

    Look it up once and call it often: ``op_call(op.kind, inputs, outputs, *op.attrs(...))``.

    Raises:
        InvalidArgumentError: There is no such op.
    """
    ops = {each["name"]: each for each in _C.ops()}
    if name not in ops:
        raise InvalidArgumentError(
            f"there is no op {name!r}; there are {', '.join(ops)}. npu_cuda.load_plugins() loads the "
            "libraries of installed packages, npu_cuda.load_library a file, and npu_cuda.op adds an op"
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

    Args:
        name: "acme.softmax"; unique in the process.
        inputs: Their number, or the minimum and maximum.
        outputs: Their number.
        in_place: By output, the input or inputs that it may alias. No output overlaps any other input.
        attrs: Name, letter of the struct module (one of i I q Q f d) and default of each attribute.
        attrs_required: Every call must pass the attributes.
        schema: Four letters that identify its attributes among those of all ops; None: derived from the name.

    Raises:
        InvalidArgumentError: The name or the schema is taken, or a count, letter or index is invalid.
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
    fields = [(field, code, _as_double(name, field, default)) for field, code, default in attrs]
    kind = _C.register_op(name, least, most, masks, letters, fields, attrs_required)
    return Op(name, kind, letters or None)


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
