"""Every error this toolkit raises on purpose: what happened, where, and how to fix it."""

from __future__ import annotations


class NpuError(Exception):
    """Base of all our errors.

    Args:
        message: What is wrong, with the values.
        where: The node, file or argument it was found at.
        fix: What the reader can do about it.
    """

    def __init__(self, message: str, *, where: str | None = None, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        lines = [self.message]
        if self.where:
            lines.append(f"  at: {self.where}")
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)


class GraphError(NpuError):
    """A graph breaks a rule of the IR, or an edit would make it do so."""


class ParseError(NpuError):
    """Text that should be a graph, a type or a literal is not one."""


class SerializationError(NpuError):
    """A graph cannot be written to a file, or a file cannot be read as a graph."""


class ExportError(NpuError):
    """torch.export could not capture the model."""


class ConversionError(NpuError):
    """An exported program contains something that has no place in the graph."""


class RegistryError(NpuError):
    """An op, a hook or a command is registered twice or in a wrong form."""


class PluginError(NpuError):
    """A plugin could not be loaded or breaks a rule of the plugin interface."""


class ExecutionError(NpuError):
    """A graph cannot be run on what it was given, or a node failed while it ran."""


class BackendError(NpuError):
    """A backend is unknown, cannot run here, or does not keep to its interface."""


class WeightError(NpuError):
    """Weights are missing, unexpected, of another shape or dtype, or cannot be read."""


class VerificationError(NpuError):
    """A graph and its model could not be compared."""


class UsageError(NpuError):
    """A command line, or a request for random data, asks for what cannot be done as it is written."""


class FactoryError(NpuError):
    """The user's code that makes a model failed."""


class VisualizationError(NpuError):
    """A graph cannot be drawn as asked, or the drawing cannot be written."""


class CaptureWarning(UserWarning):
    """A graph leaves out something that the model does, or fixes a size that was to stay open."""
