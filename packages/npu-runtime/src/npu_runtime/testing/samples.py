"""Contract tests on more graphs: PyTorch's operators on its own samples, and random graphs."""

from __future__ import annotations

import unittest
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch

from npu_ir import BackendError, Interpreter, OpNode, Value
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.graph.binding import bind_inputs, bind_weights
from npu_ir.testing import COMMON_OPERATORS, Sample, operator_samples, random_samples
from npu_runtime.probing.storage import with_stated_strides
from npu_runtime.testing.data import output_problem
from npu_runtime.testing.trials import Part, Trials, error_context

__tracebackhide__ = True  # pytest shows the error, and frames of the plugin, not those of this module

_SHOWN = 8


class SampleContract(Trials):
    """The results of what a backend supports, on graphs and data that are not of the zoo.

    Attributes:
        operators: The names of PyTorch's operators to take samples of, as `npu_ir.testing.operators` lists
            them; none if empty.
        samples_per_operator: How many samples of each.
        random_graphs: How many random graphs.
    """

    operators: ClassVar[Sequence[str]] = COMMON_OPERATORS
    samples_per_operator: ClassVar[int] = 1
    random_graphs: ClassVar[int] = 10

    def test_samples_of_operators_give_the_results_of_the_interpreter(self) -> None:
        self._require_correct_samples(list(operator_samples(self.operators, count=self.samples_per_operator)))

    def test_random_graphs_give_the_results_of_the_interpreter(self) -> None:
        self._require_correct_samples(list(random_samples(self.random_graphs)))

    def _require_correct_samples(self, samples: Sequence[Sample]) -> None:
        self.the_device()
        count = 0
        problems = []
        for sample in samples:
            parts = list(self.parts_of(sample.name, sample.graph))
            known = _interpret(sample) if parts else {}
            count += len(parts)
            for part in parts:
                problems += [f"{part.ops} of {part.name}: {text}" for text in self._problems(part, known)]
        if problems:
            more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
            raise BackendError(
                "\n  ".join([f"{len(problems)} of {count} parts fail:", *problems[:_SHOWN], *more]),
                where=f"backend {self.backend.name!r}",
                fix="correct the kernel, have supports() refuse the node with a reason, or state rtol and "
                "atol in the contract class",
            )
        if samples and not count:
            raise unittest.SkipTest(f"{self.backend.name} supports no node of these graphs")

    def _problems(self, part: Part, known: Mapping[Value, Any]) -> Iterator[str]:
        """Yield the difference of the results of a part from those of the interpreter, if there is one."""
        device = self.the_device()
        inputs = [_on_device(known[part.outer(value)], value, device) for value in part.graph.inputs]
        expected = [known[part.outer(value)] for value in part.graph.outputs]
        try:
            trial = self.prepare_trial(part, device)
            outputs = trial.run(inputs)
        except BackendError as error:
            yield error.message
            return
        tolerance = (self.rtol, self.atol)
        problem = output_problem(part.graph, outputs, expected, device, tolerance)
        if problem is not None:
            yield problem


def _interpret(sample: Sample) -> dict[Value, Any]:
    """Return every value of a graph, as the interpreter computes it."""
    graph = sample.graph
    known = {**bind_weights(graph, sample.weights), **bind_inputs(graph, sample.args, {}, SymbolValues({}))}

    def observe(node: OpNode, outputs: list[Any]) -> None:
        known.update(zip(node.outputs, outputs, strict=True))

    Interpreter(graph, sample.weights, observe=observe).run_flat(sample.args, observe=observe)
    return known


def _on_device(item: Any, value: Value, device: torch.device) -> Any:
    """Return a copy of a tensor on a device, with the strides that the graph states."""
    if not isinstance(item, torch.Tensor):
        return item
    with error_context("copying an input", value.name):
        return with_stated_strides(item.detach().clone().to(device), value.type)
