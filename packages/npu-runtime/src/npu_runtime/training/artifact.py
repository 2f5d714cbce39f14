"""`CompileArtifact`: a step that has been compiled and captured, to be replayed."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir.core.structure import LEAF, unflatten
from npu_ir.ops.effects import is_random
from npu_runtime.errors import CaptureError
from npu_runtime.executor.executor import IRExecutor
from npu_runtime.training.capture.runners import named_weight, store
from npu_runtime.training.capture.snapshots import Snapshot, unchanged
from npu_runtime.training.compiled_step import CompiledStep


@dataclass(eq=False)
class CompileArtifact(CompiledStep):
    """A step over the memory of its model: `replay` takes a step, `run_ir` computes the same on the executor.

    Made by `compile_and_capture`. The state it trains with is that of the optimizer: it is in ``optimizer.state_dict()``,
    eager steps go on with it, and what is loaded there is what the next replay works on. It is not for two threads at
    once: calls of `replay` wait for each other.

    Attributes:
        name: What `get_artifact` finds it by.
        graph: After the passes.
        weights: What a step works on, by name: parameters, buffers, optimizer state, in their own memory.
        backends: Who was asked to run nodes, in order of preference.
        capture_state: ``"cuda-graph"``: recorded by the device; ``"planned"``: the planned program over fixed memory;
            ``"off"``: the executor, op by op.
        reason: Why it is not captured, or not recorded by the device; empty otherwise.
        report: Of the capture check; None where it was not asked for.
        program: Over fixed memory; None where the step is not captured.
        generators: Those that the step draws from, besides PyTorch's default ones.
    """

    def replay(self, *batch: Any, borrow: bool = False, **named: Any) -> Any:
        """Take a step, and return what it returns.

        Args:
            batch: As the step was traced for.
            borrow: Return the memory that the next step overwrites, in place of copies.
            named: Further arguments. ``hyperparameters`` are those of the optimizers, now, if they are not given.

        Raises:
            ExecutionError: The arguments are not what the step was made for, or an op fails. No state has changed
                then, random generators included.
            CaptureError: This is a replay already; or hyperparameters have changed such that Python would go another way;
                or a tensor of the model lies elsewhere now.
        """
        with self._lock:
            self._follow_optimizers()
            self._require_same_memory()
            if self._require_branches is not None and "hyperparameters" not in named:
                self._require_branches()
            numbers = self._runner.load(batch, self._with_hyperparameters(named))
            results = self._launched_safely(numbers)
            kept = results if borrow else list(map(_apart, results))
        return self._in_structure(kept)

    def prepare(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Copy a batch into the fixed inputs; no step is taken."""
        with self._lock:
            self._follow_optimizers()
            self._numbers = self._runner.load(args, self._with_hyperparameters(kwargs))

    def launch(self, numbers: Sequence[Any] = ()) -> Sequence[Any]:
        """Take a step on what `inputs` hold; return its results, flat: memory that the next step overwrites.

        Args:
            numbers: A number for each input that is one, in the order of ``graph.inputs``.
        """
        with self._lock:
            results = self.run_unshared(numbers)
            if self._shared is not None:
                self._shared.install()
            return results

    def run_unshared(self, numbers: Sequence[Any] = ()) -> Sequence[Any]:
        """Take a step as `launch` does, and leave the optimizers without its state: for steps that are taken back."""
        with self._lock:
            self._numbers = numbers
            return self._runner.run(*numbers)

    def run_ir(self, *batch: Any, commit: bool = False, **named: Any) -> Any:
        """Compute a step by `IRExecutor` on the same graph and the same state, and return what it returns.

        Args:
            batch: As for `replay`.
            commit: Change the state, as `replay` does; if not, all is as before, random generators included.
            named: As for `replay`.
        """
        with self._lock:
            self._follow_optimizers()
            if commit:
                results, mutations = self._executed(batch, named)
                store(self.graph, mutations, lambda target: named_weight(target, self.weights).detach())
                if self._shared is not None:
                    self._shared.install()
            else:
                with unchanged(self.weights.values(), self.generators):
                    results, _ = self._executed(batch, named)
        return self._in_structure(results)

    def mutations(self, *batch: Any, **named: Any) -> dict[str, torch.Tensor]:
        """Return what `run_ir` computes for the state, by name; nothing changes."""
        with self._lock:
            self._follow_optimizers()
            with unchanged(self.weights.values(), self.generators):
                return self._executed(batch, named)[1]

    def _executed(self, batch: Sequence[Any], named: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        executor = IRExecutor(self.graph, self.weights, backend=list(self.backends), passes=None)
        return executor.run_flat(batch, self._with_hyperparameters(named))

    def rebind(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Work on other tensors of the same types; nothing is traced, lowered or planned again."""
        with self._lock:
            other = self._run_on(weights)
            self.weights, self.program, self._runner = weights, other.program, other.runner
            self.capture_state, self.reason = other.capture_state, other.reason
            self._trace = None
            for name in ("pool", "_places", "_shared"):
                self.__dict__.pop(name, None)

    # Inside

    def _follow_optimizers(self) -> None:
        """Work on the state that the optimizers have, where they were given other state since the last step."""
        replaced = {} if self._shared is None else self._shared.replaced()
        if replaced:
            self.rebind({**self.weights, **replaced})

    def _require_same_memory(self) -> None:
        moved = next((name for name, tensor, place in self._places if tensor.data_ptr() != place), None)
        if moved is not None:
            raise CaptureError(
                f"{moved!r} lies elsewhere than when the step was captured: a replay would change what nobody reads",
                where=f"graph {self.graph.name!r}",
                fix="bind the artifact to the tensors of now: artifact.rebind({**model.state_dict(), ...})",
            )

    def _launched_safely(self, numbers: Sequence[Any]) -> Sequence[Any]:
        if not self._draws:
            return self.launch(numbers)
        before = Snapshot([], self.generators, [self.pool.device])
        try:
            return self.launch(numbers)
        except BaseException:
            before.restore()
            raise

    @functools.cached_property
    def _draws(self) -> bool:
        return any(map(is_random, self.graph.nodes))

    def _with_hyperparameters(self, named: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._hyperparameters is None or "hyperparameters" in named:
            return named
        return {**named, "hyperparameters": self._hyperparameters()}

    def _in_structure(self, leaves: Sequence[Any]) -> Any:
        structure = self.graph.results[0]
        return leaves[0] if structure.kind == LEAF else unflatten(structure, list(leaves))


def _apart(item: Any) -> Any:
    return item.clone() if isinstance(item, torch.Tensor) else item
