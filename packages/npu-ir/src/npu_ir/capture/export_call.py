"""The export of one call of a model by torch.export."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram

from npu_ir._torch.export import shape_specs
from npu_ir._torch.fake_kernels import corrected_fakes
from npu_ir._torch.tracing import relaxed_size_assumptions, right_states_of_lstms
from npu_ir.capture.export_messages import HeldMessages, export_error
from npu_ir.capture.held_tensors import held_tensors, name_held_tensors, register_temporarily
from npu_ir.capture.model_guard import protect_model
from npu_ir.capture.python_state import PythonStateWarnings
from npu_ir.capture.replaced_buffers import resolve_assignments
from npu_ir.capture.tracing_mode import ContentGuard, ForwardCallMode, TensorIdentityMode
from npu_ir.errors import ExportError, NpuError


class CaptureSubject:
    """A model to capture, with the locations of its tensors."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        # For the id of each parameter and buffer: the dict of a module that has it, and the key in it.
        self.places = {
            id(tensor): (owner, key)
            for module in reversed(list(model.modules()))
            for owner in (module._buffers, module._parameters)
            for key, tensor in owner.items()
            if tensor is not None
        }
        everything = held_tensors(model)
        # The unregistered tensors of the model, by path.
        self.held = {path: tensor for path, tensor in everything.items() if id(tensor) not in self.places}
        # An attribute, container or object outside the registries holds a tensor of the model.
        self.is_shared = bool(everything)

    @property
    def registered(self) -> list[torch.Tensor]:
        return [*self.model.parameters(), *self.model.buffers()]

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [*self.registered, *self.held.values()]


@dataclass(frozen=True, slots=True)
class ExportCall:
    """A model with the arguments of one call, none of whose tensors are on ``meta`` while it is exported."""

    subject: CaptureSubject
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic_shapes: Any  # in the format of `torch.export.export`
    meta_is_cpu: bool  # create on the CPU what ``forward`` creates on ``meta``

    def export(self, buffers: Mapping[str, torch.Tensor]) -> ExportedProgram:
        """Return the exported program, in which unregistered tensors are named by their paths.

        Of these, ``buffers`` become buffers, traced as the tensors given here by path; the others, constants.

        Raises:
            ExportError: torch.export cannot capture the model; or ``dynamic_shapes`` names a dimension that a
                tensor does not have.
            ConversionError: ``forward`` registers, replaces or removes a parameter, buffer or module.
        """
        model, held = self.subject.model, self.subject.held
        self._require_dimensions()
        try:
            with register_temporarily(model, buffers) as names:
                program = self._export_model(names)
                resolve_assignments(program)
        except NpuError:
            raise
        except Exception as error:
            raise export_error(model, self.args, self.kwargs, error) from error
        name_held_tensors(program, {path: held[path] for path in held if path not in buffers}, names)
        return program

    def _require_dimensions(self) -> None:
        """Raise for a dimension that does not exist or is negative; torch.export ignores some of these."""
        specs = shape_specs(self.subject.model, self.args, self.kwargs, self.dynamic_shapes)
        for place, tensor, spec in specs:
            for key in spec if isinstance(spec, Mapping) else ():
                if isinstance(key, bool) or not hasattr(key, "__index__") or not 0 <= key < tensor.ndim:
                    raise ExportError(
                        f"{place} names the dimension {key!r} of a tensor of shape {list(tensor.shape)}",
                        fix="dimensions are numbered from 0, as in {0: torch.export.Dim('batch')}",
                    )

    def _export_model(self, names: Mapping[str, str]) -> ExportedProgram:
        """Return the exported program, with dynamic sizes of at least 1 where possible, else at least 2.

        By default torch.export assumes sizes of at least 2 while it traces, and states ranges that begin
        lower: a branch for a batch of one would be lost silently (torch 2.13). If it fails without this
        assumption, it runs again with it, and the ranges of the graph begin at 2.
        """
        if self.dynamic_shapes is not None:
            # An error that has another cause occurs again below.
            with contextlib.suppress(Exception), relaxed_size_assumptions():
                return self._trace(names)
        return self._trace(names)

    def _trace(self, names: Mapping[str, str]) -> ExportedProgram:
        model = self.subject.model
        with (
            PythonStateWarnings(model),
            protect_model(model),
            ContentGuard(),
            HeldMessages(model),
            right_states_of_lstms(),
            corrected_fakes(),
            ForwardCallMode(),
            self._identity_mode(names),
        ):
            return torch.export.export(
                model, self.args, self.kwargs, dynamic_shapes=self.dynamic_shapes, strict=False
            )

    def _identity_mode(self, names: Mapping[str, str]) -> contextlib.AbstractContextManager[Any]:
        subject = self.subject
        if not (subject.is_shared or self.meta_is_cpu):
            return contextlib.nullcontext()
        places = {id(subject.held[path]): (subject.model._buffers, name) for name, path in names.items()}
        return TensorIdentityMode({**subject.places, **places}, meta_is_cpu=self.meta_is_cpu)
