"""Tools of PyTorch's take what to_torch and to_exported_program return."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from npu_ir import Graph, convert_exported_program, extract_ir
from npu_passes import optimize
from npu_runtime import to_exported_program, to_torch
from tests.support.same_program import described

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor compiles with g++")


def network() -> nn.Module:
    layers = (
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    )
    return nn.Sequential(*layers)


def of_any_batch(model: nn.Module) -> Graph:
    return extract_ir(model, (torch.rand(2, 3, 8, 8),), dynamic_shapes=({0: Dim("batch", min=2, max=64)},))


def saved_and_loaded(program: ExportedProgram) -> ExportedProgram:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


def test_a_program_is_saved_and_loaded() -> None:
    model = network().train()
    graph = extract_ir(model, (torch.rand(2, 3, 8, 8),))

    loaded = saved_and_loaded(to_exported_program(graph, model.state_dict()))

    x = torch.rand(2, 3, 8, 8)
    assert described(convert_exported_program(loaded, name=graph.name)) == described(graph)
    assert torch.equal(loaded.module()(x), model(x))


def test_a_program_of_open_sizes_is_saved_and_loaded() -> None:
    model = network().eval()

    loaded = saved_and_loaded(to_exported_program(of_any_batch(model), model.state_dict())).module()

    x = torch.rand(5, 3, 8, 8)
    torch.testing.assert_close(loaded(x), model(x))
    with pytest.raises(AssertionError, match="Guard failed"):
        loaded(torch.rand(65, 3, 8, 8))


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_torch_export_exports_the_module_again(mode: str) -> None:
    model = network().train(mode == "train")
    x = torch.rand(2, 3, 8, 8)
    module = to_torch(extract_ir(model, (x,)), model.state_dict())

    program = torch.export.export(module, (x,))

    wanted = model(x)
    torch.testing.assert_close(program.module()(x), wanted, rtol=0, atol=0)
    again = to_torch(convert_exported_program(program), program.state_dict)
    assert again.state_dict().keys() == module.state_dict().keys()


def test_a_program_is_decomposed() -> None:
    model = network().eval()
    program = to_exported_program(of_any_batch(model), model.state_dict())

    decomposed = program.run_decompositions()

    x = torch.rand(5, 3, 8, 8)
    assert not any("linear" in str(node.target) for node in decomposed.graph.nodes)
    torch.testing.assert_close(decomposed.module()(x), model(x))


def test_fx_interpreters_run_the_module() -> None:
    model = network().eval()
    x = torch.rand(2, 3, 8, 8)
    module = to_torch(optimize(extract_ir(model, (x,))), model.state_dict())

    result = torch.fx.Interpreter(module).run(x)

    torch.testing.assert_close(result, model(x))


@needs_compiler
def test_inductor_compiles_the_module() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8)).train()
    x = torch.rand(3, 4)
    module = to_torch(extract_ir(model, (x,)), model.state_dict())

    compiled = torch.compile(module, backend="inductor", fullgraph=True)

    torch.testing.assert_close(compiled(x), model(x))
    torch.testing.assert_close(module.get_buffer("2.running_mean"), model[2].running_mean)


@needs_compiler
def test_aotinductor_compiles_the_program(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)).eval()
    graph = extract_ir(model, (torch.rand(2, 4),), dynamic_shapes=({0: Dim("batch", min=2, max=64)},))
    program = to_exported_program(optimize(graph), model.state_dict())

    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    runner = torch._inductor.aoti_load_package(package)

    for rows in (2, 7):
        x = torch.rand(rows, 4)
        torch.testing.assert_close(runner(x), model(x))
