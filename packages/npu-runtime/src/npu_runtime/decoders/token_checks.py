"""Checks of what a decoder is given: tokens, their padding, and how others are chosen."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Sequence

import torch
from torch import Tensor

from npu_ir.errors import UsageError
from npu_runtime._torch.tensors import find_data_problem
from npu_runtime.decoders.extract import DecoderGraphs
from npu_runtime.decoders.sampler import Sampling


def require_tokens(graphs: DecoderGraphs, tokens: Tensor) -> None:
    """Refuse what is not tokens, int64 ``[batch, count]``.

    Raises:
        UsageError: It says what is given.
    """
    batch, vocabulary = graphs.batch, graphs.vocabulary
    if not isinstance(tokens, Tensor):
        raise UsageError(f"tokens are a tensor, int64 [{batch}, count], not {type(tokens).__name__}")
    if tokens.dtype != torch.int64 or tokens.dim() != 2 or tokens.shape[0] != batch or not tokens.numel():
        raise UsageError(
            f"tokens are int64 [{batch}, count], not {tokens.dtype} {list(tokens.shape)}",
            fix=f"give {batch} rows of the same length, or capture the model with another max_batch",
        )
    if tokens.layout is not torch.strided:
        raise UsageError(f"tokens are a dense tensor, not {tokens.layout}", fix="give tokens.to_dense()")
    require_data(tokens, "tokens")
    least, most = _extremes(tokens)
    if least < 0 or most >= vocabulary:
        raise UsageError(f"tokens are from 0 to {vocabulary - 1}, not from {least} to {most}")


def require_data(given: Tensor, name: str) -> None:
    """Refuse tensors without data.

    Args:
        given: What a decoder is to read.
        name: What it is, in the plural.

    Raises:
        UsageError: It is a FakeTensor, or on ``meta``.
    """
    if type(given) is not Tensor or given.is_meta:
        problem = find_data_problem(given)
        if problem is not None:
            raise UsageError(
                f"the {name} are {problem}: there is no data to read", fix="give an ordinary tensor"
            )


def _extremes(tokens: Tensor) -> tuple[int, int]:
    if tokens.numel() == 1:  # between two tokens: one call of PyTorch in place of three
        token = int(tokens.item())
        return token, token
    least, most = tokens.aminmax()
    return int(least), int(most)


def checked_padding(graphs: DecoderGraphs, padding: Sequence[int], length: int) -> list[int]:
    """Return the number of tokens of padding for each row, of prompts of a length.

    Raises:
        UsageError: The model reads padding, or these are not such numbers.
    """
    numbers = _integers(padding, "padding", "padding=[0, 2]")
    if any(numbers) and (graphs.is_recurrent or graphs.encoder is not None):
        kind = "a recurrent state" if graphs.is_recurrent else "an encoder"
        raise UsageError(
            f"a model with {kind} reads the padding of its prompt, too",
            fix="generate for prompts of one length at a time",
        )
    if len(numbers) != graphs.batch or not all(0 <= item < length for item in numbers):
        raise UsageError(
            f"padding has a number of tokens, less than {length}, for each of {graphs.batch} rows,"
            f" not {numbers!r}"
        )
    return numbers


def checked_stop(stop: Sequence[int]) -> list[int]:
    """Return the tokens that end a row.

    Raises:
        UsageError: These are not tokens.
    """
    return _integers(stop, "stop", "stop=[token]")


def checked_fill(fill: int) -> int:
    """Return the token after the end of a row.

    Raises:
        UsageError: This is not one.
    """
    with contextlib.suppress(TypeError):
        number = operator.index(fill)
        if not isinstance(fill, bool) and -(2**63) <= number < 2**63:
            return number
    raise UsageError(f"fill is an integer of int64, not {fill!r}", fix="fill=0")


def require_sampling(sampling: Sampling) -> None:
    """Refuse what does not say how tokens are chosen.

    Raises:
        UsageError: It says what is given.
    """
    if not isinstance(sampling, Sampling):
        raise UsageError(
            f"sampling is a Sampling, not {type(sampling).__name__}",
            fix="sampling=Sampling(temperature=0.7), or leave it out: the most likely token",
        )


def _integers(given: Sequence[int], name: str, fix: str) -> list[int]:
    with contextlib.suppress(TypeError):
        numbers = [operator.index(item) for item in given]
        if all(-(2**63) <= item < 2**63 for item in numbers):
            return numbers
    raise UsageError(f"{name} is a sequence of integers, not {given!r}", fix=fix)
