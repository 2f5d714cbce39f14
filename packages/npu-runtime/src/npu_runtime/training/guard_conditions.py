"""Conditions of guards, as the Python expressions that generated code consists of."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from npu_runtime.codegen.compiled_function import load_function


class Entry(NamedTuple):
    """An entry of a dict, in a condition."""

    owner: Mapping[Any, Any]
    key: Any


class Conditions:
    """Conditions over objects, as Python expressions."""

    def __init__(self) -> None:
        self._added: list[tuple[str, tuple[Any, ...]]] = []

    def add(self, text: str, *items: Any) -> None:
        """Add a condition: an expression with a field for each object."""
        self._added.append((text, items))  # not yet a text: most guards of a new step are never compiled

    def write(self, objects: dict[str, Any]) -> Iterator[str]:
        """Yield the expressions, and add the objects that they name."""
        for text, items in self._added:
            yield text.format(*(_write(item, objects) for item in items))

    def add_items(self, owner: Mapping[Any, Any], items: Mapping[Any, Any]) -> None:
        """Add for each of some items of a dict that its value is the same object."""
        for key, item in items.items():
            self.add("{} is {}", Entry(owner, key), item)

    def add_elements(self, text: str, owner: Any, elements: Sequence[Any]) -> None:
        """Add that the list which an expression returns has the same objects as elements."""
        self.add(f"len(items := {text}) == {len(elements)}", owner)
        for index, element in enumerate(elements):
            self.add(f"items[{index}] is {{}}", element)


def _write(item: Any, objects: dict[str, Any]) -> str:
    """Return an expression of an object, and add those that it names."""
    if item is None or item is True or item is False:
        return repr(item)
    if isinstance(item, Entry):
        # A key in the code is found faster than one among the globals.
        key = repr(item.key) if type(item.key) is str else _write(item.key, objects)
        return f"{_write(item.owner, objects)}[{key}]"
    name = f"o{id(item)}"
    objects[name] = item
    return name


def write_all(objects: dict[str, Any], *conditions: Conditions) -> str:
    """Return the expression that all conditions hold, and add the objects that it names."""
    texts = itertools.chain.from_iterable(part.write(objects) for part in conditions)
    return "\n            and ".join(texts) or "True"


def compile_conditions(*conditions: Conditions) -> Callable[[], bool]:
    """Return a function that returns whether all conditions hold; a key that is gone breaks one."""
    objects: dict[str, Any] = {}
    text = write_all(objects, *conditions)
    source = f"""\
def hold():
    try:
        return (
            {text}
        )
    except KeyError:
        return False
"""
    hold: Callable[[], bool] = load_function("hold", "guards", source, objects)
    return hold
