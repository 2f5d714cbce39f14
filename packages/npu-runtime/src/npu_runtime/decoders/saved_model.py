"""Configurations and tokenizers that transformers reads of a folder: nothing is looked up elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from npu_ir.errors import UsageError

_SAVED = "give a folder that model.save_pretrained() has written"
_SAVE_AGAIN = (
    "get the file again, or save the model again: model.save_pretrained(folder); a newer transformers knows"
    " more models"
)


def read_configuration(path: Any) -> Any:
    """Return the configuration of a model in a folder.

    Raises:
        UsageError: There is no such folder, or it has no configuration that transformers can read.
    """
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise UsageError(
            f"a model is one of transformers, its configuration, or the path of a folder, not {path!r:.80}",
            fix=_SAVED,
        )
    # Otherwise transformers takes it for the name of a model to download.
    if not os.fspath(path) or not Path(path).exists():
        raise UsageError(
            f"there is no folder {os.fspath(path)!r}", fix=f"{_SAVED}, or download the model into one before"
        )
    file = Path(path, "config.json") if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise UsageError(f"{path} has no config.json", fix=_SAVED)
    from transformers import AutoConfig

    return _read(lambda: AutoConfig.from_pretrained(path), file, "a configuration", _SAVE_AGAIN)


def read_generation(folder: str | os.PathLike[str]) -> Any:
    """Return the configuration of generation in a folder; None if it has none.

    Raises:
        UsageError: Transformers cannot read it.
    """
    from transformers import GenerationConfig

    file = Path(folder, "generation_config.json")
    if not file.is_file():
        return None
    read = GenerationConfig.from_pretrained
    return _read(lambda: read(folder), file, "a configuration of generation", _SAVE_AGAIN)


def read_tokenizer(folder: Path) -> Any:
    """Return the tokenizer in a folder.

    Raises:
        UsageError: There is none that transformers can read.
    """
    from transformers import AutoTokenizer

    return _read(
        lambda: AutoTokenizer.from_pretrained(folder),
        folder,
        "a tokenizer",
        "get tokenizer.json and tokenizer_config.json again, or save them: tokenizer.save_pretrained(folder)",
    )


def _read(read: Callable[[], Any], path: Path, kind: str, fix: str) -> Any:
    try:
        return read()
    except Exception as error:  # of transformers, of any type
        reason = (str(error).strip() or type(error).__name__).partition("\n")[0].rstrip(": ")
        raise UsageError(
            f"transformers cannot read {kind} here: {type(error).__name__}: {reason}",
            where=str(path),
            fix=fix,
        ) from error
