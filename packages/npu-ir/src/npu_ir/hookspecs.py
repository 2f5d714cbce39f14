"""The marker of hook implementations, and the types of what hooks get and return, as plugins import them.

The hooks are in `npu_ir.plugins.hookspecs`.
"""

from typing import TYPE_CHECKING

from npu_ir.core.lazy_names import lazy_names
from npu_ir.plugins.hookspecs import hookimpl
from npu_ir.plugins.op_registry import OpRegistry
from npu_ir.plugins.plugin_manager import PluginReport, get_plugins

if TYPE_CHECKING:
    from npu_ir.cli.doctor import Check, State
    from npu_ir.interpreter.runners import Runner

__all__ = ["Check", "OpRegistry", "PluginReport", "Runner", "State", "get_plugins", "hookimpl"]

# Lazily: their modules import those that define the hooks.
_MODULES = {
    **dict.fromkeys(("Check", "State"), "npu_ir.cli.doctor"),
    "Runner": "npu_ir.interpreter.runners",
}
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
