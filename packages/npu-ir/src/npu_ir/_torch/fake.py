"""FakeTensors, their modes, and an environment in which ops run on symbolic sizes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from npu_ir._torch.sizes import RELATIONS
from npu_ir._torch.tracing import hold_log, relaxed_size_assumptions, right_states_of_lstms


def is_fake(tensor: torch.Tensor) -> bool:
    """Return whether ``tensor`` is a FakeTensor."""
    from torch._subclasses import FakeTensor

    return isinstance(tensor, FakeTensor)


def fake_mode_of(tensors: list[torch.Tensor]) -> Any:
    """Return the FakeTensorMode of ``tensors``, or a new one if none of them is fake."""
    from torch._subclasses import FakeTensorMode

    for tensor in tensors:
        if is_fake(tensor):
            return tensor.fake_mode  # type: ignore[attr-defined]
    return FakeTensorMode(allow_non_fake_inputs=True)


def fake_of(tensor: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
    """Return a FakeTensor like ``tensor``, of the mode of ``others``."""
    fake: torch.Tensor = fake_mode_of(others).from_tensor(tensor, static_shapes=True)
    return fake


def below_python() -> Any:
    """Return a context in which no mode sees an op, and no tensor subclass."""
    return torch._C._DisableTorchDispatch()


@contextlib.contextmanager
def trial(tensors: list[torch.Tensor]) -> Iterator[None]:
    """Run ops on these FakeTensors without side effects: no guards and no new symbols are recorded.

    Raises:
        RuntimeError: The result of an op depends on a size that is known only at run time.
    """
    mode = fake_mode_of(tensors)
    env = mode.shape_env
    if env is None:
        with mode:
            yield
        return
    with mode, env.suppress_guards(), env.ignore_fresh_unbacked_symbols():
        yield


class FakeEnvironment:
    """An environment of FakeTensors with symbolic sizes, in which ops run and their guards are recorded.

    The symbols are those of a graph, so they may be 0 or 1 if their ranges allow it.
    """

    def __init__(self) -> None:
        from torch._subclasses import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self._env = ShapeEnv()
        self._names: dict[Any, Any] = {}
        self.mode = FakeTensorMode(shape_env=self._env)
        # Callers remember the types of each call: a second cache costs more than it saves.
        self.mode.cache_enabled = False

    def symbolic_size(self, name: str, low: int | None, high: int | None, example: int) -> Any:
        """Return a new SymInt; PyTorch follows ``example`` if it must decide a branch."""
        import sympy  # type: ignore[import-untyped]
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic, StrictMinMaxConstraint
        from torch.utils._sympy.value_ranges import ValueRanges

        ends = -sympy.oo if low is None else low, sympy.oo if high is None else high
        symbol = self._env.create_symbol(
            example,
            ConstantSource(name),
            DimDynamic.DYNAMIC,
            StrictMinMaxConstraint(warn_only=False, vr=ValueRanges(*ends)),
            positive=True if low is not None and low > 0 else None,
            do_not_specialize_zero_one=True,
        )
        self._names[symbol] = sympy.Symbol(name)
        return self._env.create_symintnode(symbol, hint=example)

    def tensor(self, shape: list[Any], strides: list[Any], dtype: torch.dtype) -> torch.Tensor:
        """Return a new FakeTensor on the CPU; the environment is active."""
        from torch._subclasses import FakeTensor

        if not all(type(size) is int for size in (*shape, *strides)):
            return torch.empty_strided(shape, strides, dtype=dtype)
        # What the mode does with this call takes ten times as long.
        with below_python():
            meta = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
        return FakeTensor(self.mode, meta, torch.device("cpu"))

    def unbacked_number(self, kind: str) -> Any:
        """Return an unbacked symbolic ``int``, ``float`` or ``bool``."""
        create: dict[str, Callable[[], Any]] = {
            "int": self._env.create_unbacked_symint,
            "float": self._env.create_unbacked_symfloat,
            "bool": self._env.create_unbacked_symbool,
        }
        return create[kind]()

    @contextlib.contextmanager
    def activate(self) -> Iterator[None]:
        """Run ops on the FakeTensors of this environment, and create new ones."""
        with (
            self.mode,
            relaxed_size_assumptions(),
            right_states_of_lstms(),
            self._env.ignore_fresh_unbacked_symbols(),
            # Dropped: the exception says the same.
            hold_log(lambda _record: None, ("torch", "torch._subclasses.fake_tensor")),
        ):
            yield

    @property
    def assumptions(self) -> list[str]:
        """The guards of ops on symbolic sizes that do not follow from their ranges."""
        return [str(relation.xreplace(self._names)) for relation in self._assumed]

    @property
    def assumes_bounds_only(self) -> bool:
        """True if every guard states that a size is below or above a bound, or not 0 or 1."""
        return all(map(_is_bound, self._assumed))

    @property
    def _assumed(self) -> list[Any]:
        return [guard.expr for guard in self._env.guards]


def _is_bound(relation: Any) -> bool:
    kind = type(relation).__name__
    if kind == "Unequality":
        return _is_not_zero_or_one(*relation.args) and "Mod" not in str(relation)
    return kind in RELATIONS and kind != "Equality"


def _is_not_zero_or_one(left: Any, right: Any) -> bool:
    """Return whether ``left != right`` states that something is not 0 or 1, as ``8*b != 8`` does."""
    size, number = (right, left) if left.is_number else (left, right)
    return number in (0, 1) or size.as_content_primitive()[0] == number
