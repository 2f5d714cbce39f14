"""Tables of a test: one item tries every row, and names those that fail."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from _pytest.mark import ParameterSet

F = TypeVar("F", bound=Callable[..., None])


def each_row(names: str | tuple[str, ...], rows: Mapping[str, Any] | Iterable[Any]) -> Callable[[F], F]:
    """Return a decorator: the test is called with every row of a table, as one item that names all failures.

    Every row begins under the seed that items begin under, and with an empty ``tmp_path``. Other fixtures are
    shared.

    Args:
        names: The parameters that a row fills: ``"a, b"``, or a tuple.
        rows: By id, or in a list, then of parameters of pytest or plain; a tuple each for several names.
    """
    parameters = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    table = _named_rows(rows)
    assert table, "a table has rows"

    def decorate(test: F) -> F:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failures = []
            for index, (name, row) in enumerate(table):
                torch.manual_seed(0)
                if "tmp_path" in fixtures:
                    folder = Path(fixtures["tmp_path"]) / f"row{index}"
                    folder.mkdir()
                    own = {**fixtures, "tmp_path": folder}
                else:
                    own = fixtures
                values = row if len(parameters) > 1 else (row,)
                try:
                    test(**dict(zip(parameters, values, strict=True)), **own)
                except Exception as error:  # noqa: BLE001 - each row is tried, and reported
                    failures.append((name, error))
            if failures:
                text = "\n".join(f"row {name}: {type(error).__name__}: {error}" for name, error in failures)
                raise AssertionError(f"{len(failures)} of {len(table)} rows fail\n{text}") from failures[0][1]

        own_parameters = [item for item in signature.parameters.values() if item.name not in parameters]
        run.__signature__ = signature.replace(parameters=own_parameters)  # type: ignore[attr-defined]
        return run  # type: ignore[return-value]

    return decorate


def _named_rows(rows: Mapping[str, Any] | Iterable[Any]) -> list[tuple[str, Any]]:
    if isinstance(rows, Mapping):
        return [(repr(name), row) for name, row in rows.items()]
    named = []
    for index, row in enumerate(rows):
        if isinstance(row, ParameterSet):
            assert not row.marks, "a row has no marks: parametrize the test instead"
            values = row.values[0] if len(row.values) == 1 else row.values
            named.append((repr(row.id or index), values))
        else:
            named.append((f"{index}, {row!r:.60}", row))
    return named
