"""The backends ``host`` and ``cuda``: the same ops and programs, on the CPU and on NVIDIA GPUs."""

from __future__ import annotations

import abc
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch

from npu_cuda import _C
from npu_cuda.backend.bound_program import BoundProgram, BoundRowLoop, copy_elements, use_threads_of_pytorch
from npu_cuda.backend.copy_fusion import join_copies
from npu_cuda.backend.copy_rules import CASTS
from npu_cuda.backend.costs import CALL_OVERHEAD, CALL_OVERHEAD_ON_CUDA, seconds_of, seconds_on_cuda
from npu_cuda.backend.fusion import fuse
from npu_cuda.backend.optimizer_rules import OPTIMIZER_STEPS
from npu_cuda.backend.program import PreparedProgram, ProgramInstance, copy_program, kernel_ops
from npu_cuda.backend.relu_fusion import join_relus
from npu_cuda.backend.selection import SelectingOnce, passed_over, select_ops
from npu_cuda.backend.state_rows import add_saving_ops, can_overwrite
from npu_cuda.backend.view_rules import VIEW
from npu_cuda.errors import NpuCudaError
from npu_ir import BackendError, Graph, OpNode
from npu_ir.core.storage import copy_with_strides
from npu_ir.graph.partition import in_place_of
from npu_ir.plugins.backend import Backend, BackendOp, Captured, RowLoop, StepLoop

_CPU = torch.device("cpu")
_OP_INDEX = re.compile(r"\bop (\d+)\b")


class NativeBackend(Backend):
    """A backend for nodes with native kernels; the native registry is asked for each node."""

    name: ClassVar[str]

    def ops_of(self, node: OpNode) -> list[BackendOp] | str:
        """Return the ops of a node with their kernels, or why there are none."""
        return select_ops(node, self.name)

    def supports(self, node: OpNode) -> str | None:
        ops = self.ops_of(node)
        return ops if isinstance(ops, str) else None

    def passed_over(self, node: OpNode) -> Sequence[str]:
        return passed_over(node, self.name)

    def is_free(self, node: OpNode) -> bool:
        ops = self.ops_of(node)
        return not isinstance(ops, str) and not kernel_ops(ops)

    def updates_in_place(self, node: OpNode) -> bool:
        return node.op_type in OPTIMIZER_STEPS

    def overwrites_rows(self, node: OpNode) -> bool:
        return can_overwrite(node, self.ops_of(node), self.name)

    def lower(self, graph: Graph) -> Sequence[BackendOp]:
        ops = self._fused(self.lower_one_by_one(graph), graph)
        return list(add_saving_ops(in_place_of(graph), ops, self.name))

    def _fused(self, ops: Sequence[BackendOp], graph: Graph) -> Sequence[BackendOp]:  # noqa: ARG002 - for subclasses
        return ops

    def ops_in_partition(self, node: OpNode) -> list[BackendOp] | str:
        """Return the ops of a node of the graph that `lower` gets."""
        return self.ops_of(node)

    def lower_one_by_one(self, graph: Graph) -> Sequence[BackendOp]:
        """Return the ops of each node."""
        lowered: list[BackendOp] = []
        for node in graph.nodes:
            ops = self.ops_in_partition(node)
            if isinstance(ops, str):
                raise BackendError(
                    f"the backend {self.name!r} does not run {node.op_type}: {ops}",
                    where=f"node {node.name!r}",
                    fix="give it nodes that supports() takes",
                )
            lowered += ops
        return lowered

    def prepare(self, graph: Graph, ops: Sequence[BackendOp], device: torch.device) -> PreparedProgram:
        with self.errors_of(ops):
            return PreparedProgram(graph, ops, device, self.native_device(device))

    def memory_bytes(self, program: PreparedProgram) -> int:
        return program.arena_bytes

    def run(self, program: PreparedProgram, inputs: Sequence[Any]) -> Sequence[Any]:
        _require_count(program, inputs)
        tensors = list(inputs)
        for make in program.outputs:
            tensors.append(make())  # noqa: PERF401 - comprehensions are calls before Python 3.12
        try:
            program.run(tensors, self.stream(program.device), inputs)
            self.finish(program.device)
        except BaseException as error:  # kernels in Python raise errors of their own
            program.undo(inputs)
            if isinstance(error, NpuCudaError):
                raise self.backend_error(error, program.ops) from error
            raise
        if program.returns_exactly_outputs:
            return tensors[program.input_count :]
        return [result.of(tensors) for result in program.layout.results]

    def undo(self, program: PreparedProgram, inputs: Sequence[Any]) -> None:
        program.undo(inputs)

    def bind_constants(
        self, program: PreparedProgram, constants: Mapping[int, Any]
    ) -> PreparedProgram | None:
        return program.with_constants(constants)

    def bind(
        self, program: PreparedProgram, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Callable[[], None]:
        _require_count(program, inputs)
        tensors, copies = program.place_outputs(inputs, outputs)
        with self.errors_of(program.ops):
            return BoundProgram(self, program, program.instance_for(tensors), inputs, copies)

    def capture(self, program: PreparedProgram, inputs: Sequence[Any]) -> Captured:
        _require_count(program, inputs)
        fixed = tuple(map(copy_with_strides, inputs))
        tensors = [*fixed, *[make() for make in program.outputs]]
        # A result in the memory of an input gets its own, and is copied at each replay.
        outputs = tuple(
            copy_with_strides(result.of(tensors)) if result.place < len(fixed) else result.of(tensors)
            for result in program.layout.results
        )
        with self.errors_of(program.ops):
            instance = program.instance_for(tensors)
            recording = instance, instance.native.capture()
        captured = Captured(program, fixed, outputs, recording)
        self.replay(captured)
        return captured

    def replay(self, captured: Captured) -> None:
        program: PreparedProgram = captured.program
        _, graph = captured.recording
        try:
            graph.launch(1, self.stream(program.device))
            self.finish(program.device)
        except NpuCudaError as error:
            raise self.backend_error(error, program.ops) from error
        for result, output in zip(program.layout.results, captured.outputs, strict=True):
            if result.place < len(captured.inputs) and isinstance(output, torch.Tensor):
                copy_elements(result.of(captured.inputs), output)

    @abc.abstractmethod
    def native_device(self, device: torch.device) -> str:
        """Return the name of a device in the native part."""

    def stream(self, device: torch.device) -> int:  # noqa: ARG002 - the CPU has one
        """Return the handle of the stream for a launch, the caller's; 0 if the device has only one."""
        return 0

    def finish(self, device: torch.device) -> None:
        """Wait for the launches, on devices whose stream is unknown to PyTorch."""

    @contextlib.contextmanager
    def errors_of(self, ops: Sequence[BackendOp]) -> Iterator[None]:
        try:
            yield
        except NpuCudaError as error:
            raise self.backend_error(error, ops) from error

    def backend_error(self, error: NpuCudaError, ops: Sequence[BackendOp]) -> BackendError:
        """Return an error of the native part as a `BackendError` that names the nodes."""
        found = _OP_INDEX.search(str(error))
        ops = kernel_ops(ops) or ops
        named = ops[int(found[1]) : int(found[1]) + 1] if found else ()
        nodes = (named or ops)[0].nodes + (named or ops)[-1].nodes if ops else ()
        names = dict.fromkeys(node.name for node in nodes)
        return BackendError(
            f"the backend {self.name!r} failed: {error}",
            where=f"node{'s' if len(names) > 1 else ''} {' to '.join(map(repr, names))}" if names else None,
        )


def _require_count(program: PreparedProgram, inputs: Sequence[Any]) -> None:
    if len(inputs) != program.input_count:
        raise BackendError(f"{len(inputs)} inputs for a program that takes {program.input_count}")


class HostBackend(NativeBackend):
    """The native ops on the CPU: the reference for kernels, and a way to run programs without a GPU."""

    name = "host"

    def devices(self) -> Sequence[torch.device]:
        return [torch.device("cpu")]

    def _fused(self, ops: Sequence[BackendOp], graph: Graph) -> Sequence[BackendOp]:
        joined = join_copies(join_relus(ops, graph.outputs, self.name), graph.outputs, self.name)
        return fuse(joined, graph.outputs, self.name)

    def prepare(self, graph: Graph, ops: Sequence[BackendOp], device: torch.device) -> PreparedProgram:
        use_threads_of_pytorch()  # some ops have memory for each
        return super().prepare(graph, ops, device)

    @contextlib.contextmanager
    def timed_ops(self, program: PreparedProgram) -> Iterator[list[float]]:
        seconds: list[float] = []
        _C.trace_start(len(program.kernel_ops) + 1)
        try:
            yield seconds
        finally:
            _C.trace_stop()
            launches = _C.trace_events()
            if len(launches) == len(program.kernel_ops):
                times = iter(launches)
                seconds += [
                    0.0 if op.kind == VIEW else next(times)["duration_ns"] * 1e-9 for op in program.ops
                ]

    def stream(self, device: torch.device) -> int:
        use_threads_of_pytorch()
        return super().stream(device)

    def make_quick_run(self, program: PreparedProgram) -> Callable[[list[Any]], Sequence[Any] | None] | None:
        if not program.returns_exactly_outputs or program.expanded:
            return None
        is_aligned = program.needs_alignment  # what other memory there is goes to `run`
        idle = program.idle[0, is_aligned, ()]
        makers, places = tuple(program.outputs), program.places
        threads_of_pytorch, own_threads = torch.get_num_threads, _C.thread_count

        def call(inputs: list[Any]) -> Sequence[Any] | None:
            if threads_of_pytorch() != own_threads():
                use_threads_of_pytorch()
            try:
                instance = idle.pop()
            except IndexError:
                instance = ProgramInstance(program, is_aligned=is_aligned)
            if program.updates:
                program.begin(instance, inputs)
            try:
                return instance.native.compute(inputs, makers, places)
            except BaseException as error:
                program.undo(inputs)
                if isinstance(error, NpuCudaError):
                    raise self.backend_error(error, program.ops) from error
                raise
            finally:
                idle.append(instance)

        return call

    def make_loop(
        self,
        runs: Sequence[Callable[[], None]],
        copies: Sequence[tuple[torch.Tensor, torch.Tensor]],
        inputs: Sequence[torch.Tensor],
        slots: Sequence[Sequence[torch.Tensor]],
        results: Sequence[torch.Tensor],
    ) -> StepLoop | None:
        programs = [run.native for run in runs if isinstance(run, BoundProgram) and not run.copies]
        if len(programs) < len(runs) or not all(item.is_contiguous() for item in results):
            return None
        if copies:
            programs.append(copy_program(self.name, copies))
        use_threads_of_pytorch()
        return _C.StepLoop(programs, list(inputs), [list(slot) for slot in slots], list(results))

    def make_row_loop(
        self,
        runs: Sequence[Callable[[], None]],
        inputs: Sequence[tuple[torch.Tensor, torch.Tensor]],
        results: Sequence[tuple[torch.Tensor, torch.Tensor]],
        stop: tuple[Sequence[int], torch.Tensor] | None = None,
    ) -> RowLoop | None:
        programs = [run for run in runs if isinstance(run, BoundProgram) and not run.copies]
        return BoundRowLoop(programs, inputs, results, stop) if len(programs) == len(runs) else None

    def native_device(self, device: torch.device) -> str:  # noqa: ARG002 - there is one
        return "host"

    def by_cost(self) -> Backend:
        return PricedHostBackend()

    def pipeline(self, device: torch.device) -> str:  # noqa: ARG002 - it runs on the CPU alone
        return "host"

    def training_pipeline(self, device: torch.device) -> str:  # noqa: ARG002 - it runs on the CPU alone
        return "train-host"


class PricedHostBackend(SelectingOnce, HostBackend):
    """The native ops on the CPU where they take less time than ATen's."""

    call_overhead = CALL_OVERHEAD
    seconds = staticmethod(seconds_of)


class CudaBackend(NativeBackend):
    """The native ops on NVIDIA GPUs; in a build with the emulator, in the memory of the CPU."""

    name = "cuda"

    def devices(self) -> Sequence[torch.device]:
        if _C.cuda_absence():
            return []
        if _is_emulated():
            return [torch.device("cpu")]
        if not torch.cuda.is_available():
            return []
        return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]

    def supports(self, node: OpNode) -> str | None:
        ops = self.ops_of(node)
        if isinstance(ops, str):
            return ops
        if node.op_type in CASTS and node.attrs.get("device") == _CPU and not _is_emulated():
            return "it moves a tensor to the CPU"
        return next((reason for op in ops if (reason := _slow_product(op))), None)

    def _fused(self, ops: Sequence[BackendOp], graph: Graph) -> Sequence[BackendOp]:
        joined = join_relus(ops, graph.outputs, self.name)
        return joined if _C.chain_compiler()["absence"] else fuse(joined, graph.outputs, self.name)

    def by_cost(self) -> Backend | None:
        return None if _is_emulated() else PricedCudaBackend()

    def absence(self) -> str:
        return _C.cuda_absence() or "the installed PyTorch finds no CUDA device"

    def native_device(self, device: torch.device) -> str:
        return "cuda:0" if _is_emulated() else f"cuda:{device.index or 0}"

    def stream(self, device: torch.device) -> int:
        return 0 if device.type == "cpu" else int(torch.cuda.current_stream(device).cuda_stream)

    def finish(self, device: torch.device) -> None:
        if device.type == "cpu":
            _C.synchronize("cuda")


class PricedCudaBackend(SelectingOnce, CudaBackend):
    """The native ops on NVIDIA GPUs where they take less time than ATen's."""

    call_overhead = CALL_OVERHEAD_ON_CUDA
    seconds = staticmethod(seconds_on_cuda)


def _slow_product(op: BackendOp) -> str | None:
    """Return why ATen computes a product faster; None for other ops, and where it does not."""
    if not op.kernel.startswith("gemm.") or not op.kernel.endswith(".cuda.simple"):
        return None
    return f"ATen's products are 2 to 38 times as fast as {op.kernel}"  # docs/reference/gpu-benchmarks.md


def _is_emulated() -> bool:
    return bool(_C.build_info()["mode"] == "EMULATE")
