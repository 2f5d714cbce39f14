"""The exceptions of this toolkit: each says what happened, where, and how to fix it."""

from __future__ import annotations


class NpuError(Exception):
    """Base class of all exceptions of this toolkit.

    Args:
        message: The problem, with the values.
        where: The node, file or argument where it was found.
        fix: A remedy for the reader.
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
    """A graph breaks a rule of the IR, or an edit would break one."""


class ParseError(NpuError):
    """Text does not parse as a graph, a type or a literal."""


class SerializationError(NpuError):
    """A graph cannot be written to a file, or a file cannot be read as a graph."""


class ExportError(NpuError):
    """torch.export could not capture the model."""


class ConversionError(NpuError):
    """An exported program contains something that a graph cannot express."""


class RegistryError(NpuError):
    """An op, a hook or a command is registered twice or incorrectly."""


class PluginError(NpuError):
    """A plugin could not be loaded or breaks a rule of the plugin interface."""


class ExecutionError(NpuError):
    """A graph cannot run on these arguments, or a node failed while it ran."""


class BackendError(NpuError):
    """A backend is unknown, cannot run here, or violates its interface."""


class WeightError(NpuError):
    """Weights are missing, unexpected, of another shape or dtype, or cannot be read."""


class VerificationError(NpuError):
    """A graph and its model could not be compared."""


class UsageError(NpuError):
    """A command line, or a request for random data, cannot be satisfied as written."""


class FactoryError(NpuError):
    """The user's model factory failed."""


class VisualizationError(NpuError):
    """A graph cannot be drawn as requested, or the drawing cannot be written."""


class CaptureWarning(UserWarning):
    """A graph leaves out an effect of the model, or fixes a size that was meant to stay dynamic."""
