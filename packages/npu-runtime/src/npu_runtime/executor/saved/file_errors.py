"""Errors of what a file holds, which name the file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from npu_ir import BackendError, SerializationError
from npu_ir.errors import NpuError

NEW_FILE = "make a new file here: IRExecutor(graph, weights).save(path), or npu compile"


@contextlib.contextmanager
def named_place(place: str) -> Iterator[None]:
    """Let errors name the file, or a position in it: what it holds fits neither itself nor this process.

    Raises:
        BackendError: That was raised: a backend is missing, or cannot run here.
        SerializationError: Any other error of this project was raised.
    """
    try:
        yield
    except SerializationError:
        raise  # it names the file
    except NpuError as error:
        kind = BackendError if isinstance(error, BackendError) else SerializationError
        where = f"{place}: {error.where}" if error.where else place
        raise kind(error.message, where=where, fix=NEW_FILE) from error
    except RecursionError as error:
        raise SerializationError("nested too deeply", where=place, fix=NEW_FILE) from error
