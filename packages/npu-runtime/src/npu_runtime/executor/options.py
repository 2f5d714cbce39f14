"""Resolution of an executor's options: the optimized graph, the weights, the device."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import torch

from npu_ir import ExecutionError, Graph, load_weights
from npu_ir.errors import BackendError, SerializationError
from npu_ir.graph.requirement import require_weights
from npu_ir.plugins.backend import Backend
from npu_passes import Pass, PassError, PassManager
from npu_runtime.backends.answers import ask_pipeline
from npu_runtime.backends.measured_costs import (
    MeasuredCosts,
    describe_machine,
    load_measured_costs,
    tuning_path,
)
from npu_runtime.backends.partition import ATEN
from npu_runtime.backends.registry import AUTO, automatic_backends, usable_backends

Weights = Mapping[str, torch.Tensor] | str | os.PathLike[str] | None
Passes = str | Pass | type[Pass] | Iterable[Pass | type[Pass] | str] | None

_CPU = torch.device("cpu")
_MOST_THREADS = 1024  # more are a mistake, and a process that cannot start them ends
_TRAIN_CPU = "train-cpu"
# Namespaces of ops that PyTorch implements on CPUs only.
_CPU_ONLY = ("mkldnn.", "mkl.", "aten.mkldnn")


def require_threads(threads: object) -> None:
    """Raise unless this is a number of threads, or None.

    Raises:
        ExecutionError: It is not.
    """
    if threads is not None and (type(threads) is not int or not 1 <= threads <= _MOST_THREADS):
        raise ExecutionError(
            f"an executor uses 1 to {_MOST_THREADS} threads, not {threads!r}",
            fix="give a number, or leave threads= out for that of the process",
        )


def optimize_graph(graph: Graph, passes: Passes) -> Graph:
    """Return a copy of the graph with the passes run over it.

    Raises:
        PassError: A pass is unknown, or fails.
    """
    if passes is None:
        return graph.clone()
    if not isinstance(passes, (str, Pass, type, Iterable)):
        raise PassError(f"{passes!r} names no passes", fix='passes="default", a list of passes, or None')
    return PassManager(passes).optimize(graph)


def read_weights(weights: Weights, graph: Graph) -> Mapping[str, torch.Tensor] | None:
    """Return weights by name; of a file, only those that the graph reads.

    Raises:
        WeightError: They cannot be read, or are not weights.
    """
    if isinstance(weights, (str, os.PathLike)):
        return load_weights(weights, graph)
    require_weights(weights)
    return weights


def resolve_tuning(
    tuning: MeasuredCosts | str | os.PathLike[str] | None, backends: Sequence[Backend], threads: int | None
) -> MeasuredCosts | None:
    """Return the costs that were measured on this machine; None if none were.

    Raises:
        SerializationError: The file beside the graph cannot be read, or neither of them exists.
    """
    if tuning is None:
        return None
    machine = describe_machine(backends, threads)
    if isinstance(tuning, MeasuredCosts):
        return tuning if tuning.machine == machine else None
    path = tuning_path(tuning)
    if not (os.path.exists(path) or os.path.exists(tuning)):
        raise SerializationError(
            f"neither the graph {os.fspath(tuning)} nor what was measured for it is there",
            where=str(path),
            fix="check the path: it is that of a saved graph, beside which npu tune writes",
        )
    return load_measured_costs(path, machine)


def resolve_passes(
    passes: Passes,
    device: torch.device,
    backends: Sequence[Backend],
    measured: MeasuredCosts | None = None,
) -> Passes:
    """Return the passes for a program: for ``"auto"``, the pipeline that suits its first backend.

    If something was measured, it is the pipeline that was fastest.
    """
    if passes == AUTO:
        return ask_pipeline(backends[0], device) if measured is None else measured.passes
    # An iterator has them once only.
    return passes if not isinstance(passes, Iterable) or isinstance(passes, str) else tuple(passes)


def pass_names(passes: Passes) -> tuple[str, ...]:
    """Return the names of the passes that `optimize_graph` runs."""
    if passes is None:
        return ()
    return tuple(item.name for item in PassManager(passes).passes)


def resolve_step_passes(passes: Passes, device: torch.device, backends: Sequence[Backend]) -> Passes:
    """Return the passes for a step: for ``"auto"``, the pipeline of training that suits its first backend."""
    return ask_pipeline(backends[0], device, is_step=True) if passes == AUTO else passes


def reject_cpu_passes_elsewhere(graph: Graph, passes: Passes, device: torch.device) -> None:
    """Refuse passes, and ops in the graph that they made, for CPUs on another device.

    Raises:
        ExecutionError: The passes are a pipeline for CPUs, or a node calls an op that exists on CPUs only.
    """
    if device.type == "cpu":
        return
    fix = f'passes="default" on {device}; or device="cpu"'
    if isinstance(passes, str) and passes in (_CPU.type, _TRAIN_CPU):
        raise ExecutionError(
            f"the pipeline {passes!r} is for CPUs, and the executor runs on {device}", fix=fix
        )
    for node in graph.nodes:
        if node.op_type.startswith(_CPU_ONLY):
            raise ExecutionError(
                f"only CPUs have {node.op_type}, and the executor runs on {device}",
                where=f"node {node.name!r}",
                fix=fix,
            )


def default_backend(passes: Passes) -> str:
    """Return the backend of an executor of these passes that is not told which."""
    return AUTO if passes == AUTO else ATEN


def resolve_backends(
    backend: str | Backend | Sequence[str | Backend],
    device: torch.device | str | None,
    weights: Weights,
) -> tuple[tuple[Backend, ...], torch.device]:
    """Return the backends in order of preference, with ATen as the last, and the device they run on.

    Args:
        backend: A name, a `Backend`, or several; ``"auto"`` for all those that state costs and run on the
            device.
        device: The requested device. If none is, it is that of the first weight, or the CPU without weights;
            if the first backend other than ATen does not run there, it is that backend's first device.
        weights: The weights; those of a file are on the CPU.

    Raises:
        ExecutionError: PyTorch cannot use the device.
        BackendError: There is no such backend, or it does not run there.
    """
    if backend == AUTO:
        chosen = _select_device(device, weights, ())
        considered = (item for item in automatic_backends() if chosen in item.devices())
        return tuple(usable_backends(list(considered))), chosen
    backends = tuple(usable_backends(backend))
    return backends, _select_device(device, weights, backends)


def _select_device(
    device: torch.device | str | None, weights: Weights, backends: Sequence[Backend]
) -> torch.device:
    native = [backend for backend in backends if backend.name != ATEN]
    if device is None:
        given = weights.values() if isinstance(weights, Mapping) else ()
        tensors = (item for item in given if isinstance(item, torch.Tensor))
        chosen = next((item.device for item in tensors), _CPU)
        devices = native[0].devices() if native else ()
        chosen = devices[0] if devices and chosen not in devices else chosen
    else:
        chosen = resolve_device(device)
    for backend in native:
        if chosen not in backend.devices():
            raise BackendError(
                f"the backend {backend.name!r} does not run on {chosen}",
                fix=f"device= is one of {', '.join(map(str, backend.devices()))}",
            )
    return chosen


def resolve_device(device: torch.device | str) -> torch.device:
    """Return a device with its index.

    Raises:
        ExecutionError: PyTorch cannot use it here.
    """
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ExecutionError(
            f"PyTorch cannot use the device {str(device)!r} here: {reason}",
            fix="leave device= out to run where the weights are",
        ) from error
