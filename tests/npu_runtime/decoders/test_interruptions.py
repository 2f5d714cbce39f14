"""Ctrl-C and forks while tokens are generated: a decoder says what is lost, and can be used again."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from npu_ir.errors import UsageError
from npu_runtime import Decoder
from npu_runtime.decoders.cached_text import CachedText
from npu_runtime.decoders.token_loop import TokenStep
from npu_runtime.executor.executor import IRExecutor
from tests.npu_runtime.decoders.test_encoder import SOURCE, START, extracted
from tests.npu_runtime.decoders.test_token_loop import PROMPTS, decoder
from tests.support.processes import run_python

_MADE = """
import os, signal, threading, time
import torch
from npu_runtime import Decoder, extract_decoder
from tests.support.language_models import language_model

signal.alarm(100)
model = language_model("llama", max_position_embeddings=30_000)
decoder = Decoder(extract_decoder(model, max_length=30_000, counts=()), model.state_dict())
prompt = torch.arange(3, 8)[None]
expected = decoder.generate(prompt, max_new_tokens=8)
assert all(item is not None for item in decoder._choices._loops.values()), "tokens need Python in between"
decoder.reset()
"""

# For nearly all of the time, Python is within a call of the native loop, which returns ten times in a second.
_CTRL_C = """
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background of a shell ignore it

def interrupt():
    while decoder.position < 100:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    decoder.generate(prompt, max_new_tokens=29_000)
    print("it was not interrupted")
except KeyboardInterrupt:
    print("interrupted")
position = decoder.position
print("in between" if 100 <= position < 29_000 else position)
noted, following = decoder._text._tokens[:, :position].clone(), decoder.feed(prompt)
print("its beginning:", torch.equal(decoder.generate(prompt, max_new_tokens=8), expected))
whole = decoder.generate(prompt, max_new_tokens=position - 4)
print("its text:", torch.equal(noted, whole[:, :-1]), torch.equal(following, decoder.feed(prompt)))
"""


def test_ctrl_c_ends_the_native_loop_and_the_text_goes_on_from_there() -> None:
    done = run_python(_MADE + _CTRL_C)

    assert done.stdout.splitlines() == [
        "interrupted",
        "in between",
        "its beginning: True",
        "its text: True True",
    ], done.stderr


# PyTorch's own threads, those of OpenMP, do not outlive a fork: with two of them its ops hang in the child.
_ONE_THREAD = """
import torch
torch.set_num_threads(1)
"""
_FORK = """
def generate():
    decoder.generate(prompt, max_new_tokens=29_000)

generating = threading.Thread(target=generate, daemon=True)
generating.start()
while decoder.position < 100:
    time.sleep(0.01)
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(7 if torch.equal(decoder.generate(prompt, max_new_tokens=8), expected) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), generating.is_alive(), flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_generates_while_a_thread_of_its_parent_does() -> None:
    done = run_python(_ONE_THREAD + _MADE + _FORK)

    assert done.stdout.split() == ["7", "True"], done.stderr


@pytest.mark.parametrize("backend", ["aten", "host"])
@pytest.mark.parametrize(("owner", "name"), [(CachedText, "note"), (IRExecutor, "__call__")])
def test_a_text_that_was_interrupted_before_it_was_noted_does_not_go_on(
    owner: Any, name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = decoder(4, backend=backend)
    expected = made.generate(PROMPTS, max_new_tokens=6)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, interrupt)
        with pytest.raises(KeyboardInterrupt):
            made.feed(PROMPTS)

    for use in (
        lambda: made.feed(PROMPTS),
        lambda: made.generate(PROMPTS, max_new_tokens=2, reset=False),
        lambda: list(made.stream(PROMPTS, max_new_tokens=2)),
    ):
        with pytest.raises(UsageError, match="the last call of the decoder was interrupted: it is unknown"):
            use()
    assert torch.equal(made.generate(PROMPTS, max_new_tokens=6), expected)


def test_an_interruption_between_two_writes_does_not_change_what_later_calls_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = decoder(4)
    expected = made.feed(PROMPTS[:, :4])
    made.reset()
    fill = torch.Tensor.fill_

    def interrupt(tensor: torch.Tensor, number: int) -> None:
        fill(tensor, number)
        if tensor is made._text._last:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, "fill_", interrupt)
        with pytest.raises(KeyboardInterrupt):
            made.feed(PROMPTS[:, :3])  # fewer than the graph is for

    assert torch.equal(made.feed(PROMPTS[:, :4]), expected)


@pytest.mark.parametrize(("owner", "name"), [(CachedText, "empty"), (TokenStep, "read")])
def test_a_source_is_not_read_after_an_interruption_between_its_parts(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, graphs = extracted("t5")
    made = Decoder(graphs, model.state_dict(), backend="host")
    made.encode(SOURCE)
    expected = made.generate(max_new_tokens=6)
    write = getattr(owner, name)

    def interrupt(*arguments: Any) -> None:
        write(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, interrupt)
        with pytest.raises(KeyboardInterrupt):
            made.encode(SOURCE.flip(1))

    for use in (lambda: made.feed(START), lambda: made.generate(max_new_tokens=6)):
        with pytest.raises(UsageError, match="the decoder has no source to read\n  fix: call encode"):
            use()
    made.encode(SOURCE)
    assert torch.equal(made.generate(max_new_tokens=6), expected)
