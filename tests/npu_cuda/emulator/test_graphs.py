"""Graphs of the emulated runtime: edges and updates."""

import ctypes

import numpy as np
import pytest

from tests.support.emulator.library import SCHEDULES, THREAD_LOCAL, Emulator

ADD, SET = 0, 1  # flags of cudaStreamUpdateCaptureDependencies


def edges(emulator: Emulator, graph: ctypes.c_void_p) -> list[tuple[int, int]]:
    count = ctypes.c_size_t()
    emulator.check("cudaGraphGetNodes", graph, None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * count.value)()
    emulator.check("cudaGraphGetNodes", graph, nodes, ctypes.byref(count))
    emulator.check("cudaGraphGetEdges", graph, None, None, None, ctypes.byref(count))
    sources, targets = (ctypes.c_void_p * count.value)(), (ctypes.c_void_p * count.value)()
    emulator.check("cudaGraphGetEdges", graph, sources, targets, None, ctypes.byref(count))
    position = {node: i for i, node in enumerate(nodes)}
    return [(position[source], position[target]) for source, target in zip(sources, targets, strict=True)]


def scale(emulator: Emulator, stream: ctypes.c_void_p, x: np.ndarray, y: np.ndarray) -> None:
    assert emulator.run("scale", stream, x, y, np.float32(2), x.size) == ""


def capture_two(
    emulator: Emulator, stream: ctypes.c_void_p, arrays: list[np.ndarray], chained: bool
) -> ctypes.c_void_p:
    """Return a graph of x -> y -> z, each a scaling; without its edge unless chained."""
    x, y, z = arrays
    emulator.check("cudaStreamBeginCapture", stream, THREAD_LOCAL)
    scale(emulator, stream, x, y)
    first = leaves(emulator, stream)
    if not chained:
        emulator.check("cudaStreamUpdateCaptureDependencies", stream, None, None, 0, SET)
    scale(emulator, stream, y, z)
    if not chained:
        emulator.check("cudaStreamUpdateCaptureDependencies", stream, first, None, len(first), ADD)
    error, graph = emulator.end_capture(stream)
    assert error == "cudaSuccess"
    return graph


def leaves(emulator: Emulator, stream: ctypes.c_void_p) -> ctypes.Array[ctypes.c_void_p]:
    """Return what the next node of a capture will depend on."""
    status, nodes, edges = ctypes.c_int(), ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_void_p()
    count = ctypes.c_size_t()
    out = map(ctypes.byref, (nodes, edges, count))
    emulator.check("cudaStreamGetCaptureInfo", stream, ctypes.byref(status), None, None, *out)
    return (ctypes.c_void_p * count.value)(*nodes[: count.value])


def test_what_a_capture_leaves_dangling_is_not_joined(emulator: Emulator, stream: ctypes.c_void_p) -> None:
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    emulator.check("cudaStreamBeginCapture", stream, THREAD_LOCAL)
    scale(emulator, stream, x, y)
    emulator.check("cudaStreamUpdateCaptureDependencies", stream, None, None, 0, SET)

    error, graph = emulator.end_capture(stream)

    assert (error, graph.value) == ("cudaErrorStreamCaptureUnjoined", None)


@pytest.mark.parametrize("chained", [True, False])
def test_an_edge_that_a_graph_lacks_shows_under_some_schedule(
    emulator: Emulator, streams: list[ctypes.c_void_p], chained: bool
) -> None:
    arrays = [np.ones(4, np.float32) for _ in range(3)]
    graph = capture_two(emulator, streams[0], arrays, chained)
    exec_ = emulator.create("cudaGraphInstantiate", graph, 0)
    results = set()
    for schedule in SCHEDULES:
        emulator.set_schedule(schedule)
        arrays[1][:] = arrays[2][:] = -1
        emulator.check("cudaGraphLaunch", exec_, streams[1])
        results.add(arrays[2][0].item())

    assert edges(emulator, graph) == ([(0, 1)] if chained else [])
    assert results == ({4.0} if chained else {4.0, -2.0})
    emulator.check("cudaGraphExecDestroy", exec_)
    emulator.check("cudaGraphDestroy", graph)


def test_an_update_takes_new_pointers_and_no_new_shape(
    emulator: Emulator, streams: list[ctypes.c_void_p]
) -> None:
    x, y, z = (np.ones(4, np.float32) for _ in range(3))
    graph = capture_two(emulator, streams[0], [x, y, z], chained=True)
    other = capture_two(emulator, streams[0], [x, z, y], chained=True)
    unchained = capture_two(emulator, streams[0], [x, z, y], chained=False)
    exec_ = emulator.create("cudaGraphInstantiate", graph, 0)
    info = (ctypes.c_int64 * 4)()

    emulator.check("cudaGraphExecUpdate", exec_, other, info)
    answer = emulator("cudaGraphExecUpdate", exec_, unchained, info)
    emulator.check("cudaGraphLaunch", exec_, streams[0])

    assert answer == "cudaErrorGraphExecUpdateFailure"
    assert (y[0], z[0]) == (4, 2)
    emulator.check("cudaGraphExecDestroy", exec_)
    for each in (graph, other, unchained):
        emulator.check("cudaGraphDestroy", each)
