"""Random ops: the numbers of Philox, the same everywhere, and new ones in each launch of a graph."""

import numpy as np
import pytest
import torch

import npu_cuda
from npu_cuda import _C
from npu_cuda.testing.rows.random import philox, uniform

DROP = npu_cuda.attrs("DROP", p=0.25)


def dropout(x: torch.Tensor, seed: int, offset: int) -> tuple[torch.Tensor, torch.Tensor]:
    y, mask = torch.empty_like(x), torch.empty(x.shape, dtype=torch.bool)
    keys = [torch.tensor(seed), torch.tensor(offset)]
    npu_cuda.op_call(npu_cuda.kinds()["Dropout"], [x, *keys], [y, mask], *DROP)
    return y, mask


def test_the_reference_gives_the_words_that_its_authors_state() -> None:
    """Source: kat_vectors of Random123."""
    words = philox(0, np.zeros(1, np.uint64))

    assert [hex(word) for word in words[0]] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


def test_threads_and_strides_do_not_change_the_numbers() -> None:
    x = torch.ones(200, 301)
    before = _C.thread_count()
    masks = []
    try:
        for threads in (1, 2, 5):
            _C.set_thread_count(threads)
            masks += [dropout(x, -7, 2**40 + 3)[1], dropout(torch.ones(301, 200).t(), -7, 2**40 + 3)[1]]
    finally:
        _C.set_thread_count(before)

    wanted = torch.from_numpy(uniform(np.int64(-7), np.int64(2**40 + 3), (200, 301)) >= 0.25)
    assert all(torch.equal(mask, wanted) for mask in masks)


@pytest.mark.skipif(bool(_C.cuda_absence()), reason="no device of CUDA")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_host_and_cuda_give_the_same_bits(dtype: str) -> None:
    attrs = npu_cuda.attrs("UNIF", low=-0.3, high=0.7)
    results = []
    for device in ("host", "cuda"):
        keys = []
        for number in (2**63 - 5, 12345):
            keys.append(npu_cuda.empty((), "int64", device))
            keys[-1].copy_from(number.to_bytes(8, "little"))
        y = npu_cuda.empty((1001,), dtype, device)
        npu_cuda.op_call(npu_cuda.kinds()["Uniform"], keys, [y], *attrs)
        results.append(y.to_bytes())

    assert results[0] == results[1]


def test_each_launch_of_a_graph_draws_the_next_numbers() -> None:
    count = 1001
    program = npu_cuda.Program("host")
    specs = [npu_cuda.TensorSpec("float32", [count]), *[npu_cuda.TensorSpec("int64", [])] * 2]
    x, seed, offset = map(program.slot, specs)
    y, mask = program.slot(specs[0]), program.slot(npu_cuda.TensorSpec("bool", [count]))
    kinds = npu_cuda.kinds()
    program.add(kinds["Dropout"], [x, seed, offset], [y, mask], *DROP)
    program.add(kinds["AddScalar"], [offset], [offset], *npu_cuda.attrs("ADDN", other=(count + 3) // 4))
    program.finalize()
    drawn, offsets = torch.empty(count, dtype=torch.bool), torch.tensor(5)
    for slot, tensor in zip(
        (x, seed, offset, y, mask),
        (torch.ones(count), torch.tensor(3), offsets, torch.empty(count), drawn),
        strict=True,
    ):
        program.bind(slot, tensor)
    graph = program.capture()

    masks = []
    for _ in range(3):
        graph.launch()
        masks.append(drawn.clone())

    whole = uniform(np.int64(3), np.int64(5), (3 * 1004,)) >= 0.25  # 251 counters each
    assert offsets == 5 + 3 * 251
    for i, each in enumerate(masks):
        assert torch.equal(each, torch.from_numpy(whole[1004 * i : 1004 * i + count]))
