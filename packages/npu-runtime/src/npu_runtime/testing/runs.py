"""Contract tests of running programs: results, memory, threads and failures."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from npu_ir import Graph, Value
from npu_ir.core.storage import copy_memory
from npu_ir.errors import BackendError
from npu_ir.ops.effects import is_view
from npu_ir.testing.data import Content
from npu_runtime.testing.data import has_same_bytes, invert_bytes, shared_pairs, storage_bytes
from npu_runtime.testing.trials import QuickRun, Trial, Trials, error_context

__tracebackhide__ = True  # pytest shows the error, and frames of the plugin, not those of this module

_THREADS = 4
_RUNS_PER_THREAD = 3


class RunContract(Trials):
    """The promises of `prepare` and `run`."""

    def test_results_are_those_of_the_interpreter(self) -> None:
        self._require_correct(Content.ORDINARY)

    def test_zeros_are_computed_with(self) -> None:
        self._require_correct(Content.ZEROS)

    def test_infinities_are_computed_with(self) -> None:
        self._require_correct(Content.INFINITIES)

    def test_nan_is_computed_with(self) -> None:
        self._require_correct(Content.NANS)

    def test_tensors_may_start_anywhere_in_their_storage(self) -> None:
        for trial in self.trials():
            inputs = trial.inputs(offset=1)
            trial.require(trial.run(inputs), inputs, "inputs that start one element behind their storage")

    def test_one_tensor_may_be_passed_for_several(self) -> None:
        for trial in self.trials():
            by_type: dict[Any, Any] = {}
            pairs = zip(trial.graph.inputs, trial.inputs(), strict=True)
            inputs = [by_type.setdefault(value.type, item) for value, item in pairs]
            trial.require(trial.run(inputs), inputs, "one tensor passed for all inputs of a type")

    def test_parameters_may_be_passed(self) -> None:
        for trial in self.trials():
            inputs = [_as_parameter(item) for item in trial.inputs()]
            trial.require(trial.run(inputs), inputs, "inputs that are parameters")

    def test_inputs_stay_as_they_are(self) -> None:
        for trial in self.trials():
            inputs = trial.inputs(offset=1)
            before = storage_bytes(inputs)
            trial.run(inputs)
            if not has_same_bytes(before, storage_bytes(inputs)):
                raise BackendError(
                    "run writes into its inputs, or around them",
                    where=trial.name,
                    fix="write into memory from allocate() only",
                )

    def test_a_later_call_does_not_write_into_results(self) -> None:
        for trial in self.trials():
            outputs = trial.run(trial.inputs(seed=0))
            before = storage_bytes(outputs)
            trial.run(trial.inputs(seed=1))
            if not has_same_bytes(before, storage_bytes(outputs)):
                raise BackendError(
                    "a later call changed the results of the one before",
                    where=trial.name,
                    fix="allocate the results of each run",
                )

    def test_what_is_written_into_results_has_no_influence(self) -> None:
        for trial in self.trials():
            invert_bytes(trial.run(trial.inputs()))
            inputs = trial.inputs()
            trial.require(trial.run(inputs), inputs, "a call after something was written into results")

    def test_results_share_memory_only_where_ops_are_views(self) -> None:
        for trial in self.trials():
            inputs = trial.inputs()
            more = sorted(shared_pairs(inputs, trial.run(inputs)) - _may_share(trial.graph))
            if more:
                index, kind, other = more[0]
                raise BackendError(
                    f"output {index} shares memory with {kind} {other}, and an op between is not a view",
                    where=trial.name,
                    fix="return a copy",
                )

    def test_the_same_inputs_give_the_same_bits(self) -> None:
        for trial in self.trials():
            first = _dense(trial.run(trial.inputs()))
            if not all(has_same_bytes(first, _dense(trial.run(trial.inputs()))) for _ in range(2)):
                raise BackendError(
                    "the same inputs give other bits in another run",
                    where=trial.name,
                    fix="keep no state between runs, and add in a fixed order",
                )

    def test_programs_of_one_graph_compute_the_same(self) -> None:
        for trial in self.trials():
            further = trial.prepare()
            inputs = trial.inputs()
            if not has_same_bytes(_dense(trial.run(inputs)), _dense(trial.run(inputs, further))):
                raise BackendError(
                    "two programs of one graph give different bits",
                    where=trial.name,
                    fix="choose kernels by the graph and the device only",
                )

    def test_programs_have_nothing_in_common(self) -> None:
        trials = self.trials()
        results = [
            (trial, inputs, trial.run(inputs)) for trial in trials for inputs in [trial.inputs(seed=2)]
        ]
        for trial in trials:
            trial.run(trial.inputs(seed=3), trial.prepare())
        for trial, inputs, outputs in results:
            trial.require(outputs, inputs, "after programs of other graphs, and of the same, were run")
            trial.require(trial.run(inputs), inputs, "a run after programs of other graphs")

    def test_bound_constants_are_read_at_each_run(self) -> None:
        for trial in self.trials():
            inputs = trial.inputs()
            constants = dict(list(enumerate(inputs))[::2])
            with error_context("bind_constants", trial.name):
                bound = trial.backend.bind_constants(trial.program, constants)
            if bound is None:
                continue
            others = inputs[1::2]
            trial.require(trial.run(others, bound), inputs, "a run with bound constants")
            for item, other in zip(inputs, trial.inputs(seed=4), strict=True):
                if isinstance(item, torch.Tensor):
                    copy_memory(other, item)
            trial.require(trial.run(others, bound), inputs, "after new contents of bound constants")
            trial.require(trial.run(inputs), inputs, "the program itself, after constants were bound")

    def test_quick_runs_return_what_runs_return(self) -> None:
        for trial in self.trials():
            quick_run = trial.make_quick_run()
            given = [trial.inputs(), trial.inputs(seed=1), trial.inputs(offset=1)]
            for inputs, outputs in [(inputs, quick_run(inputs)) for inputs in given]:
                if outputs is not None:
                    trial.require(outputs, inputs, "a quick run, after others")

    def test_many_threads_may_run_a_program_at_once(self) -> None:
        with ThreadPoolExecutor(_THREADS) as pool:
            for trial in self.trials():
                barrier = threading.Barrier(_THREADS)
                quick_run = trial.make_quick_run()
                futures = [
                    pool.submit(_run_repeatedly, trial, quick_run, seed, barrier) for seed in range(_THREADS)
                ]
                for seed, future in enumerate(futures):
                    for outputs in future.result():
                        trial.require(outputs, trial.inputs(seed=seed), f"{_THREADS} threads at once")

    def test_a_program_works_after_a_failed_run(self) -> None:
        for trial in self.trials():
            inputs = trial.inputs()
            wrong = inputs[:-1] if inputs else [torch.zeros(1, device=trial.device)]
            _require_failure(trial, wrong)
            trial.require(trial.run(inputs), inputs, "a run after one that failed")

    def _require_correct(self, content: Content) -> None:
        for trial in self.trials():
            inputs = trial.inputs(content=content)
            trial.require(trial.run(inputs), inputs, f"inputs that are {content.value}")


def _as_parameter(item: Any) -> Any:
    is_float = isinstance(item, torch.Tensor) and (item.is_floating_point() or item.is_complex())
    return torch.nn.Parameter(item) if is_float else item


def _may_share(graph: Graph) -> set[tuple[int, str, int]]:
    """Return the outputs that may share memory with inputs or earlier outputs: only views are in between."""
    sources: dict[Value, frozenset[Value]] = {value: frozenset([value]) for value in graph.inputs}
    for node in graph.nodes:
        read = (
            frozenset[Value]().union(*(sources[value] for value in node.inputs))
            if is_view(node)
            else frozenset()
        )
        sources.update((value, read or frozenset([value])) for value in node.outputs)
    outputs = [sources[value] for value in graph.outputs]
    pairs = set()
    for index, own in enumerate(outputs):
        pairs |= {(index, "input", other) for other, value in enumerate(graph.inputs) if value in own}
        pairs |= {(index, "output", other) for other in range(index) if own & outputs[other]}
    return pairs


def _dense(outputs: Sequence[Any]) -> list[Any]:
    """Return the bits of outputs without the rest of their storages."""
    return storage_bytes(
        [item.contiguous().clone() if isinstance(item, torch.Tensor) else item for item in outputs]
    )


def _run_repeatedly(
    trial: Trial, quick_run: QuickRun, seed: int, barrier: threading.Barrier
) -> list[Sequence[Any]]:
    inputs = trial.inputs(seed=seed)
    barrier.wait(timeout=60)
    results = [run(inputs) for _ in range(_RUNS_PER_THREAD) for run in (trial.run, quick_run)]
    return [outputs for outputs in results if outputs is not None]


def _require_failure(trial: Trial, wrong: Sequence[Any]) -> None:
    try:
        with torch.no_grad():
            trial.backend.run(trial.program, wrong)
    except Exception as error:  # noqa: BLE001 - any failure will do
        del error
        return
    raise BackendError(
        f"run takes {len(wrong)} inputs, the graph has {len(trial.graph.inputs)}",
        where=trial.name,
        fix="refuse another number",
    )
