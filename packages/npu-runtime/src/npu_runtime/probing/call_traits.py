"""Call traits: the observed behaviour of one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from npu_runtime.probing.out_variants import OutVariant


@dataclass(frozen=True, slots=True)
class CallTraits:
    """Call traits: the observed behaviour of one call.

    Attributes:
        kernel: The name of the callable.
        function: The fastest callable equivalent to the operator.
        in_place: The name and callable of an equivalent that writes into the first input; None if there is
            none, or planned programs are to use out-variants.
        shares: For each output the inputs, by number, that it shares memory with.
        has_stated_strides: For each output whether its strides are those of its type.
        starts_storage: For each output whether it starts at the beginning of its memory.
        out_variants: The out-variants, if they were searched for.
        is_certain: Whether the traits of memory hold in each call; if not, only the callable is known, and
            ``shares`` lists all possible aliases.
    """

    kernel: str
    function: Callable[..., Any]
    in_place: tuple[str, Callable[..., Any]] | None
    shares: tuple[frozenset[int], ...]
    has_stated_strides: tuple[bool, ...]
    starts_storage: tuple[bool, ...]
    out_variants: tuple[OutVariant, ...] = ()
    is_certain: bool = True

    @property
    def is_view(self) -> bool:
        """True if every output shares memory with an input: a pure op is then a view."""
        return self.is_certain and bool(self.shares) and all(self.shares)

    def without_memory_traits(self, inputs: int) -> CallTraits:
        """Return the traits that hold for any sizes and strides: the callable, but nothing about memory."""
        unknown = (False,) * len(self.shares)
        every = (frozenset(range(inputs)),) * len(self.shares)
        return replace(
            self,
            in_place=None,
            shares=every,
            has_stated_strides=unknown,
            starts_storage=unknown,
            out_variants=(),
            is_certain=False,
        )
