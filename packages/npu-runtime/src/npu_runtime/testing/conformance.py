"""Contract tests of the plugins that pytest's options ``--npu-backend`` and ``--npu-pass`` name.

`add_contracts` is called by the plugin of pytest, ``pytest_npu``. Without these options this has no test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npu_ir import NpuError
from npu_ir.testing import operators as all_operators
from npu_ir.testing.op_calls import find_operator
from npu_passes import parse_passes
from npu_passes.testing import PassContract
from npu_runtime.testing.contract import BackendContract


def add_contracts(**named: Sequence[str]) -> str | None:
    """Add a class of tests for each backend and pass; return why that is not possible, or None.

    Args:
        named: The names of ``backend``, of ``pass``, and of ``operators`` to take samples of.
    """
    for name in [name for name in globals() if name.startswith("Test")]:
        del globals()[name]  # of another run of pytest in this process
    try:
        settings = _settings(named["operators"])
        for name in named["backend"]:
            contract: type = type(name, (BackendContract,), {"backend": name, **settings})
            globals()[f"TestBackend[{name}]"] = contract
        for text in named["pass"]:
            parse_passes(text)
            globals()[f"TestPass[{text}]"] = type(text, (PassContract,), {"passes": text, **settings})
    except NpuError as error:
        return str(error)
    return None


def _settings(given: Sequence[str]) -> dict[str, Any]:
    """Return the attributes of contracts for the operators that the command line names."""
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if not names:
        return {}
    if names == ["none"]:
        return {"operators": (), "random_graphs": 0}
    if names == ["all"]:
        names = list(all_operators())
    for name in names:
        find_operator(name)
    return {"operators": tuple(names)}
