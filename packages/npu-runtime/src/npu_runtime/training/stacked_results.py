"""Results of many steps, each stacked along a new first dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from npu_ir import ExecutionError, TensorType
from npu_ir.core.structure import LEAF_STRUCTURE, Structure, flatten, unflatten


class StackedResults:
    """The results of steps in a row.

    Attributes:
        steps: The number of steps.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._structure: Structure | None = None
        self._types: list[tuple[torch.Size, torch.dtype]] = []
        # For each result: tensors with a row for each step, and those of the last steps, one by one.
        self._stacked: list[list[torch.Tensor]] = []
        self._single: list[list[torch.Tensor]] = []

    def add(self, results: Any, *, is_borrowed: bool) -> None:
        """Add the results of one step; those that are borrowed are copied.

        Raises:
            ExecutionError: They cannot be stacked on those before.
        """
        is_single = isinstance(results, torch.Tensor)  # as usual; `flatten` takes longer
        tensors, structure = ([results], LEAF_STRUCTURE) if is_single else flatten(results)
        self._require_alike([(item.shape, item.dtype) for item in tensors], structure)
        for single, item in zip(self._single, tensors, strict=True):
            single.append(item.clone() if is_borrowed else item)
        self.steps += 1

    def extend(self, steps: int, rows: Sequence[torch.Tensor], structure: Structure) -> None:
        """Add the results of several steps.

        Args:
            steps: How many.
            rows: For each result a tensor with a row for each step.
            structure: The structure of the results of one step.

        Raises:
            ExecutionError: They cannot be stacked on those before.
        """
        self._require_alike([(item.shape[1:], item.dtype) for item in rows], structure)
        self._join()
        for stacked, item in zip(self._stacked, rows, strict=True):
            stacked.append(item)
        self.steps += steps

    def _require_alike(self, types: list[tuple[torch.Size, torch.dtype]], structure: Structure) -> None:
        if self.steps == 0:
            self._structure, self._types = structure, types
            self._stacked, self._single = [[] for _ in types], [[] for _ in types]
        elif types != self._types or (structure is not self._structure and structure != self._structure):
            problem = "they are nested in another way"
            if structure == self._structure:
                index = next(index for index, type in enumerate(types) if type != self._types[index])
                now, before = (TensorType(*items[index]) for items in (types, self._types))
                problem = f"result {index} is {now}, and was {before}"
            raise ExecutionError(
                f"its results cannot be stacked on those before: {problem}. The step is taken",
                fix="return results of the same type in each step, such as a mean; or leave out batches of"
                " other sizes (DataLoader: drop_last=True)",
            )

    def _join(self) -> None:
        for stacked, single in zip(self._stacked, self._single, strict=True):
            if single:
                stacked.append(torch.stack(single))
                single.clear()

    def stack(self) -> Any:
        """Return the results: in the structure of those of one step, tensors with a row for each step.

        Raises:
            ExecutionError: Nothing was added, not even the results of no step.
        """
        if self._structure is None:
            raise ExecutionError(
                "there was no batch, and there was no step before: what run returns is unknown",
                fix="give a batch; an iterator that was used before has none left",
            )
        self._join()
        return unflatten(self._structure, list(map(torch.cat, self._stacked)))
