"""Diagnosis of the installation: the state of packages, plugins, runners and backends.

A plugin adds checks of its own with the hook ``npu_doctor``.
"""

from __future__ import annotations

import enum
import functools
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir.interpreter.runners import all_runners
from npu_ir.plugins import plugin_manager
from npu_ir.plugins.distributions import OWN, PURPOSES, TESTED_TORCH, installed_version
from npu_ir.serial.parser import parse_ir

_NET = "graph self_test {\n input %x: f32[3]\n %y: f32[3] = aten.relu.default(self=%x)\n return %y\n}"


class State(str, enum.Enum):
    """Outcome of a check."""

    OK = "ok"
    ABSENT = "absent"  # not installed, or not for this machine; not an error
    BROKEN = "broken"  # installed, but does not work


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    Attributes:
        topic: The group of checks: "packages", or the name of a plugin.
        name: The subject of the check.
        state: The outcome.
        text: A description, or the reason why it is absent or broken.
        fix: The remedy; "" if there is nothing to do.
    """

    topic: str
    name: str
    state: State
    text: str
    fix: str = ""


def all_checks() -> list[Check]:
    """Check everything that is installed; never raises for parts that do not work."""
    return [
        *_environment_checks(),
        *_package_checks(),
        *_plugin_state_checks(),
        *(
            run_check("runners", name, functools.partial(_run_sample_graph, make))
            for name, make in all_runners().items()
        ),
        *(
            run_check("backends", name, functools.partial(list_devices, name, backend))
            for name, backend in plugin_manager.get_plugins().backends.items()
        ),
        *hook_checks(),
    ]


def run_check(topic: str, name: str, look: Callable[[], Check | str], fix: str = "") -> Check:
    """Return the check that ``look`` returns, or an "ok" one with the text that it returns.

    If it raises, the check is broken, and ``fix`` is the remedy.
    """
    try:
        result = look()
    except Exception as error:  # noqa: BLE001 - the failure is the result of the check
        return Check(topic, name, State.BROKEN, f"{type(error).__name__}: {error}", fix)
    return result if isinstance(result, Check) else Check(topic, name, State.OK, result)


def _environment_checks() -> Iterator[Check]:
    topic = "environment"
    system = f"{platform.system()} {platform.machine()}"
    yield Check(topic, "Python", State.OK, f"{platform.python_version()}, {system}")
    yield Check(topic, "PyTorch", State.OK, _pytorch_text(str(torch.__version__)))
    if torch.version.cuda is None:
        yield Check(topic, "CUDA of PyTorch", State.ABSENT, "this PyTorch is built without CUDA")
    elif not torch.cuda.is_available():
        yield Check(topic, "CUDA of PyTorch", State.ABSENT, f"{torch.version.cuda}, and no device it can use")
    else:
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        yield Check(topic, "CUDA of PyTorch", State.OK, f"{torch.version.cuda}: {', '.join(names)}")


def _pytorch_text(version: str) -> str:
    if ".".join(version.split(".")[:2]) in TESTED_TORCH:
        return version
    return f"{version}; not one of the releases that were tested, {TESTED_TORCH[0]} to {TESTED_TORCH[-1]}"


def _package_checks() -> Iterator[Check]:
    versions = {name: installed_version(name) for name in PURPOSES}
    for name, purpose in PURPOSES.items():
        version, wanted = versions[name], versions["npu-ir"]
        if version is None:
            fix = f"python -m pip install {name}"
            yield Check("packages", name, State.ABSENT, f"not installed: {purpose}", fix)
        elif name in OWN and version != wanted:
            fix = f"python -m pip install {name}=={wanted}"
            yield Check("packages", name, State.BROKEN, f"{version}, with npu-ir {wanted}", fix)
        else:
            yield Check("packages", name, State.OK, version)


def _plugin_state_checks() -> Iterator[Check]:
    for report in plugin_manager.all_reports():
        name = report.name
        if report.refused is not None:
            is_disabled = plugin_manager.DISABLE_VARIABLE in report.refused
            setting = f"{plugin_manager.DISABLE_VARIABLE}={name}"
            fix = f"install {report.distribution} again, or leave it out: {setting}"
            state = State.ABSENT if is_disabled else State.BROKEN
            yield Check("plugins", name, state, report.refused, "" if is_disabled else fix)
        elif report.commands_refused is not None:
            yield Check("plugins", name, State.BROKEN, f"its commands are refused: {report.commands_refused}")
        else:
            offers = [f"{kind}: {len(names)}" for kind, names in report.offers.items()]
            yield Check("plugins", name, State.OK, f"{report.distribution}; {', '.join(offers) or 'nothing'}")


def _run_sample_graph(make: Callable[..., Any]) -> str:
    """Run a small graph, and raise if its result is wrong."""
    x, expected = torch.tensor([-1.0, 0.0, 2.0]), [0.0, 0.0, 2.0]
    (result,), _ = make(parse_ir(_NET), None, None).run_flat([x])
    if result.tolist() != expected:
        raise ValueError(f"relu of {x.tolist()} is {result.tolist()}")
    return "runs graphs"


def list_devices(name: str, backend: Any) -> Check | str:
    """Return the devices of a backend, or a check that says why there are none."""
    devices = backend.devices()
    if not devices:
        return Check("backends", name, State.ABSENT, str(backend.absence()))
    return f"runs on {', '.join(map(str, devices))}"


def hook_checks() -> Iterator[Check]:
    """Yield the checks that plugins add."""
    loaded = plugin_manager.get_plugins()
    for report in (report for report in loaded.reports if report.refused is None):
        try:
            answers = plugin_manager.call_hook(
                loaded.manager, loaded.manager.get_plugin(report.name), "npu_doctor"
            )
            checks = [check for answer in answers for check in answer]
            wrong = next((check for check in checks if not isinstance(check, Check)), None)
            if wrong is not None:
                raise TypeError(f"npu_doctor returns {wrong!r}, which is not an npu_ir.cli.doctor.Check")
        except Exception as error:  # noqa: BLE001 - as above
            text = f"npu_doctor failed: {type(error).__name__}: {error}"
            yield Check(report.name, "npu_doctor", State.BROKEN, text)
            continue
        yield from checks
