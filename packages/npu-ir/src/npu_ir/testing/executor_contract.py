"""The contract of executors and conversions as tests, one per promise."""

from __future__ import annotations

import contextlib
import unittest
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from npu_ir.capture import extract_ir
from npu_ir.core.literals import Literal
from npu_ir.core.tensor_bytes import same_data
from npu_ir.core.user_code import did_you_mean
from npu_ir.errors import ExecutionError, NpuError
from npu_ir.graph.graph import Graph
from npu_ir.interpreter.runners import all_runners
from npu_ir.ops import list_registered_ops
from npu_ir.ops.execution import describe, is_of_type
from npu_ir.plugins import plugin_manager
from npu_ir.serial.parser import parse_ir, parse_type
from npu_ir.testing.data import Content, make_inputs
from npu_ir.verify import verify_ir
from npu_ir.verify.comparison import compare

__tracebackhide__ = True  # pytest shows the error, and frames of the plugin, not those of this module

_THREADS = 4


@dataclass(frozen=True, slots=True)
class ExecutorSample:
    """One node of the op under test: the types of its operands, its attributes, the types of its results.

    Attributes:
        inputs: The types of its inputs, as graphs write them: ``"f32[2, 3]"``, ``"i64[]"``, ``"int"``.
        attrs: Its attributes.
        outputs: The types of its outputs.
    """

    inputs: Sequence[str]
    attrs: Mapping[str, Literal] = field(default_factory=dict)
    outputs: Sequence[str] = ()

    def __str__(self) -> str:
        attrs = f" {dict(self.attrs)}" if self.attrs else ""
        return f"{', '.join(self.inputs) or 'nothing'}{attrs}"


class ExecutorContract:
    """Contract tests for an executor: subclass it, set ``op_type``, override `samples`; pytest collects it.

    With `models`, the conversion that makes nodes of the op is tested, too. A failing test raises
    `ExecutionError`, which names the broken promise, the op and the sample.

    Attributes:
        op_type: The op that the executor is registered for.
        rtol: The relative tolerance to the reference; that of the dtype if not given.
        atol: The absolute tolerance.
    """

    op_type: ClassVar[str]
    rtol: ClassVar[float | None] = None
    atol: ClassVar[float | None] = None

    def samples(self) -> Sequence[ExecutorSample]:
        """Return nodes to test on: several shapes, dtypes and attributes."""
        raise self._broken(
            "samples() is not overridden", None, "return [ExecutorSample(inputs, attrs, outputs)]"
        )

    def reference(
        self,
        inputs: list[Any],  # noqa: ARG002 - for subclasses, like the next one
        attrs: Mapping[str, Literal],  # noqa: ARG002
    ) -> list[Any]:
        """Return the results that are right; without it, values are not tested."""
        raise unittest.SkipTest("there is nothing to compare with: override reference(inputs, attrs)")

    def models(self) -> Sequence[tuple[torch.nn.Module, tuple[Any, ...]]]:
        """Return models, each with example arguments, whose graphs have nodes of the op."""
        return ()

    def test_it_is_registered(self) -> None:
        known = list_registered_ops()["execution"]
        if self.op_type not in known:
            raise self._broken(
                f"no executor is registered for it{did_you_mean(self.op_type, known)}",
                None,
                "register it in the hook npu_register_ops of a plugin, and install that: "
                "npu plugins --doctor says why a plugin is refused",
            )

    def test_results_are_of_the_types_that_the_graph_states(self) -> None:
        for sample in self.samples():
            outputs = self._call(sample, make_inputs(self._types(sample.inputs)))
            wanted = self._types(sample.outputs)
            if not isinstance(outputs, list) or len(outputs) != len(wanted):
                count = f"a list of {len(outputs)}" if isinstance(outputs, list) else type(outputs).__name__
                raise self._broken(
                    f"it returns {count}, for {len(wanted)} outputs",
                    sample,
                    "return a list, one item per output",
                )
            for index, (item, stated) in enumerate(zip(outputs, wanted, strict=True)):
                if not is_of_type(item, stated):
                    raise self._broken(
                        f"output {index} is {describe(item)}, the sample states {stated}",
                        sample,
                        "return that shape and dtype, or correct outputs= of the sample",
                    )

    def test_results_are_those_of_the_reference(self) -> None:
        for sample in self.samples():
            for content in Content:
                inputs = make_inputs(self._types(sample.inputs), content=content)
                wanted = self.reference(_copies(inputs), sample.attrs)
                self._require_equal(
                    self._call(sample, inputs), wanted, sample, f"inputs that are {content.value}"
                )

    def test_tensors_may_start_anywhere_in_their_storage(self) -> None:
        for sample in self.samples():
            inputs = make_inputs(self._types(sample.inputs), offset=1)
            wanted = self._call(sample, _copies(inputs))
            self._require_equal(
                self._call(sample, inputs),
                wanted,
                sample,
                "inputs that start one element behind their storage",
            )

    def test_inputs_stay_as_they_are(self) -> None:
        for sample in self.samples():
            inputs = make_inputs(self._types(sample.inputs))
            before = _copies(inputs)
            self._call(sample, inputs)
            if not all(map(_is_same, before, inputs)):
                raise self._broken(
                    "it writes into its inputs", sample, "compute on a copy: graphs are functional"
                )

    def test_the_same_inputs_give_the_same_bits(self) -> None:
        for sample in self.samples():
            types = self._types(sample.inputs)
            first, again = (self._call(sample, make_inputs(types)) for _ in range(2))
            if not all(map(_is_same, first, again)):
                raise self._broken(
                    "the same inputs give other bits in another call", sample, "keep no state between calls"
                )

    def test_a_later_call_does_not_write_into_results(self) -> None:
        for sample in self.samples():
            types = self._types(sample.inputs)
            outputs = self._call(sample, make_inputs(types, seed=0))
            before = _copies(outputs)
            self._call(sample, make_inputs(types, seed=1))
            if not all(map(_is_same, before, outputs)):
                raise self._broken(
                    "a later call changed the results of the one before",
                    sample,
                    "return new tensors each time",
                )

    def test_many_threads_may_call_it_at_once(self) -> None:
        with ThreadPoolExecutor(_THREADS) as pool:
            for sample in self.samples():
                rows = [make_inputs(self._types(sample.inputs), seed=seed) for seed in range(_THREADS)]
                wanted = [_copies(self._call(sample, row)) for row in rows]
                found = pool.map(lambda row, sample=sample: self._call(sample, row), rows)
                for outputs, expected in zip(found, wanted, strict=True):
                    self._require_equal(outputs, expected, sample, f"{_THREADS} threads at once")

    def test_graphs_of_it_can_be_written_and_read(self) -> None:
        for sample in self.samples():
            graph = self._graph(sample)
            if parse_ir(str(graph)) != graph:
                raise self._broken(
                    "a graph of it differs from its text form",
                    sample,
                    "attributes are numbers, strings, dtypes and lists of them",
                )

    def test_every_runner_computes_the_same(self) -> None:
        for sample in self.samples():
            graph, inputs = self._graph(sample), make_inputs(self._types(sample.inputs))
            wanted = self._call(sample, _copies(inputs))
            for name, make in all_runners().items():
                with self._context(f"the runner {name!r}", sample):
                    runner = make(graph, None, None)
                    for call in ("a call", "a second call"):
                        outputs, _ = runner.run_flat(_copies(inputs))
                        self._require_equal(outputs, wanted, sample, f"{call} of the runner {name!r}")

    def test_models_are_converted_to_it(self) -> None:
        if not (models := self.models()):
            raise unittest.SkipTest("there is no model to convert: override models()")
        for model, args in models:
            name = type(model).__name__
            graph = extract_ir(model, args)
            found = {node.op_type for part in graph.graphs() for node in part.nodes}
            if self.op_type not in found:
                raise ExecutionError(
                    f"the graph of {name} has no node of {self.op_type}: it has {', '.join(sorted(found))}",
                    where="models()",
                    fix="register a conversion for the op that the model calls: registry.register_conversion",
                )
            report = verify_ir(graph, model, args)
            if not report.ok:
                raise ExecutionError(f"{self.op_type}: {report}", where=f"the graph of {name}")

    def _types(self, texts: Sequence[str]) -> list[Any]:
        return [parse_type(text) for text in texts]

    def _call(self, sample: ExecutorSample, inputs: Sequence[Any]) -> list[Any]:
        self.test_it_is_registered()
        function = plugin_manager.registry().table("execution")[self.op_type].function
        with self._context("it", sample), torch.no_grad():
            outputs: list[Any] = function(list(inputs), dict(sample.attrs))
            return outputs

    def _graph(self, sample: ExecutorSample) -> Graph:
        """Return a graph of the op alone."""
        graph = Graph(self.op_type)
        inputs = [graph.add_input(f"x{index}", type) for index, type in enumerate(self._types(sample.inputs))]
        with self._context("a node of it", sample):
            node = graph.insert(self.op_type, inputs, dict(sample.attrs), types=self._types(sample.outputs))
        graph.set_outputs(tuple(node.outputs))
        return graph

    def _require_equal(
        self, outputs: Sequence[Any], wanted: Sequence[Any], sample: ExecutorSample, when: str
    ) -> None:
        for index, (item, expected) in enumerate(zip(outputs, wanted, strict=True)):
            comparison = compare(f"output {index}", item, expected, self.rtol, self.atol)
            if not comparison.ok:
                raise self._broken(
                    f"{when}: {comparison}",
                    sample,
                    "correct the executor, or state rtol and atol in the class",
                )

    @contextlib.contextmanager
    def _context(self, what: str, sample: ExecutorSample) -> Iterator[None]:
        try:
            yield
        except ExecutionError as error:
            raise ExecutionError(
                f"{self.op_type}: {what} failed: {error.message}", where=f"sample {sample}", fix=error.fix
            ) from error
        except Exception as error:
            raise self._broken(
                f"{what} failed: {type(error).__name__}: {error}",
                sample,
                "correct the executor; it is called as function(inputs, attrs)",
            ) from error

    def _broken(self, problem: str, sample: ExecutorSample | None, fix: str) -> NpuError:
        where = type(self).__name__ if sample is None else f"sample {sample}"
        return ExecutionError(f"{self.op_type}: {problem}", where=where, fix=fix)


def _copies(items: Sequence[Any]) -> list[Any]:
    return [item.clone() if isinstance(item, torch.Tensor) else item for item in items]


def _is_same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return same_data(left, right)
    return bool(left == right)
