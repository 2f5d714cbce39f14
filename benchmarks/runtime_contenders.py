"""Contenders of `runtime.py`: every way to run a model, prepared on request.

A contender is made in two steps. What comes before compilation is not timed (`torch.export`, conversion to
our graph, or to the form of another runtime), and what comes after it is, until the first call has returned.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from npu_ir import Graph, Interpreter
from npu_runtime.interop.peers import PEERS

Call = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A model to run, in the forms that contenders need.

    Attributes:
        model: In eval mode.
        args: What it is called with.
        program: What torch.export makes of it.
        graph: What we make of that.
        threads: How many threads may be used.
    """

    model: torch.nn.Module
    args: tuple[Any, ...]
    program: torch.export.ExportedProgram
    graph: Graph
    threads: int


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to run a model.

    Attributes:
        title: Its name in the tables.
        prepare: Does what is not timed, and returns what is timed: a function that returns the call.
        mode: The context that calls are made in; entered once, not per call.
        is_compiled: Whether it has a compile time worth stating.
        needs: The package without which it cannot be.
    """

    title: str
    prepare: Callable[[Case], Callable[[], Call]]
    mode: Callable[[], Any] = torch.inference_mode
    is_compiled: bool = False
    needs: str = "torch"

    def missing(self) -> str | None:
        return None if importlib.util.find_spec(self.needs) else f"{self.needs} is not installed"


def eager(case: Case) -> Callable[[], Call]:
    return lambda: case.model


def exported(case: Case) -> Callable[[], Call]:
    module = case.program.module()
    return lambda: module


def fx_interpreter(case: Case) -> Callable[[], Call]:
    interpreter = torch.fx.Interpreter(case.program.module())
    return lambda: interpreter.run


def compiled(case: Case, *, freezing: bool) -> Callable[[], Call]:
    import torch._inductor.config as inductor

    inductor.freezing = freezing
    # What PyTorch does once per process, and once per machine, is not counted.
    torch.compile(lambda x: x.sin() + 1)(torch.ones(3))
    return lambda: torch.compile(case.model)


def peer(case: Case, name: str) -> Callable[[], Call]:
    chosen = PEERS[name]
    # What a runtime does once per process is not counted, as for torch.compile.
    chosen.compile(chosen.convert(torch.export.export(torch.nn.ReLU(), (torch.ones(3),))), case.threads)
    form = chosen.convert(case.program)
    arrays = tuple(item.numpy() for item in case.args)

    def made() -> Call:
        call = chosen.compile(form, case.threads)
        return lambda *_args: torch.from_numpy(call(arrays)[0])

    return made


def pytorch_ir(case: Case) -> Callable[[], Call]:
    import torch_ir

    model = copy.deepcopy(case.model).to("meta")
    args = tuple(item.to("meta") for item in case.args)
    graph = torch_ir.extract_ir(model, args)
    state = {**dict(case.model.named_buffers()), **case.model.state_dict()}

    def made() -> Call:
        executor = torch_ir.IRExecutor(graph, state)
        return lambda *args: executor.execute(args)[0]

    return made


def interpreter(case: Case) -> Callable[[], Call]:
    return lambda: Interpreter(case.graph, case.model.state_dict()).run


def executor(case: Case, passes: str | None, backend: str = "aten") -> Callable[[], Call]:
    from npu_runtime import IRExecutor

    state = case.model.state_dict()
    return lambda: IRExecutor(case.graph, state, passes=passes, backend=backend)


BEST_OF = ("eager", "compile", "compile-freezing")
OTHER_RUNTIMES = ("onnxruntime", "openvino")
OURS = ("executor", "executor-cpu", "executor-auto")
CONTENDERS = {
    "eager-no-grad": Contender("eager, no_grad", eager, torch.no_grad),
    "eager": Contender("eager, inference_mode", eager),
    "exported": Contender("exported module", exported),
    "fx": Contender("FX interpreter", fx_interpreter),
    "compile": Contender("torch.compile", partial(compiled, freezing=False), is_compiled=True),
    # It folds parameters only where nothing needs a gradient, and its constants are no inference tensors.
    "compile-freezing": Contender(
        "torch.compile, freezing", partial(compiled, freezing=True), torch.no_grad, is_compiled=True
    ),
    **{
        name: Contender(item.title, partial(peer, name=name), is_compiled=True, needs=name)
        for name, item in PEERS.items()
    },
    "pytorch-ir": Contender("pytorch-ir", pytorch_ir, is_compiled=True, needs="torch_ir"),
    "interpreter": Contender("reference interpreter", interpreter, is_compiled=True),
    "executor-plain": Contender("IRExecutor, no passes", partial(executor, passes=None), is_compiled=True),
    "executor": Contender(
        "IRExecutor, passes default", partial(executor, passes="default"), is_compiled=True
    ),
    "executor-cpu": Contender("IRExecutor, passes cpu", partial(executor, passes="cpu"), is_compiled=True),
    "executor-auto": Contender(
        "IRExecutor", partial(executor, passes="auto", backend="auto"), is_compiled=True
    ),
}
