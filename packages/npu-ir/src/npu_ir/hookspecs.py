"""The marker of hook implementations, as plugins import it; the hooks are in `npu_ir.plugins.hookspecs`."""

from npu_ir.plugins.hookspecs import hookimpl

__all__ = ["hookimpl"]
