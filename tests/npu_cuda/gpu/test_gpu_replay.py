"""Replays: the same bits as step by step, flat memory, other pointers."""

from collections.abc import Callable

import pytest
import torch

from tests.npu_cuda.gpu.steps import relu_program, step_by_op_calls, step_program

pytestmark = pytest.mark.gpu

STEPS = 1000


@pytest.mark.parametrize("topology", ["chain", "dag"])
def test_a_thousand_replays_are_a_thousand_steps(topology: str) -> None:
    start, data = torch.randn(96, 96, device="cuda"), torch.randn(96, 96, device="cuda")
    replayed, run, called = start.clone(), start.clone(), start.clone()
    graph = step_program(replayed, data).capture(topology=topology)
    program = step_program(run, data)
    product, active = torch.empty_like(start), torch.empty_like(start)

    graph.launch(STEPS)
    for _ in range(STEPS):
        program.run()
        step_by_op_calls(called, data, product, active)

    assert torch.equal(replayed, run)
    assert torch.equal(replayed, called)
    assert not torch.equal(replayed, start)


def test_memory_is_flat_over_replays() -> None:
    x, y = torch.randn(1 << 20, device="cuda"), torch.empty(1 << 20, device="cuda")
    graph = relu_program(x, y, ops=20).capture()
    graph.launch(STEPS)  # the driver keeps what so many waiting launches take
    torch.cuda.synchronize()
    free, allocated = torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated()

    graph.launch(STEPS)
    torch.cuda.synchronize()

    assert torch.cuda.mem_get_info()[0] == free
    assert torch.cuda.memory_allocated() == allocated


def test_graphs_give_back_their_memory(answer: Callable[[str], None]) -> None:
    x, y = torch.randn(1 << 10, device="cuda"), torch.empty(1 << 10, device="cuda")
    for _ in range(5):
        relu_program(x, y, ops=50).capture().launch()
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]

    for _ in range(100):
        relu_program(x, y, ops=50).capture().launch()
    torch.cuda.synchronize()

    lost = free - torch.cuda.mem_get_info()[0]
    answer(f"100 graphs of 50 nodes, made and dropped, cost {lost / 1024:.0f} KiB")
    assert lost <= 16 << 20


def test_an_update_gives_a_graph_other_pointers_and_leaves_those_of_a_launch_that_waits() -> None:
    x, y, z = (torch.randn(1 << 16, device="cuda") for _ in range(3))
    graph = relu_program(x, y).capture()
    torch.cuda.synchronize()

    torch.cuda._sleep(200_000_000)
    graph.launch()
    graph.update(relu_program(x, z))
    graph.launch()

    assert torch.equal(y, torch.relu(x))
    assert torch.equal(z, torch.relu(x))


def test_a_graph_may_be_dropped_while_it_runs() -> None:
    x, y = torch.randn(1 << 16, device="cuda"), torch.empty(1 << 16, device="cuda")
    graph = relu_program(x, y).capture()
    torch.cuda.synchronize()

    torch.cuda._sleep(200_000_000)
    graph.launch()
    del graph

    assert torch.equal(y, torch.relu(x))
