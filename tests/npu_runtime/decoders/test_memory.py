"""A decoder holds its weights and one cache, and a token allocates nothing but its results."""

import gc
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from npu_ir import WeightError, extract_ir
from npu_runtime import Decoder, DecoderGraphs, IRExecutor, extract_decoder
from tests.support.language_models import VOCABULARY, language_model

LENGTH = 61  # no other tensor has an axis of this size
PROMPT = torch.randint(3, VOCABULARY, (1, 11), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def graphs() -> DecoderGraphs:
    return extract_decoder(language_model("llama"), max_length=LENGTH, counts=(4, 16))


@pytest.fixture
def decoder(graphs: DecoderGraphs) -> Decoder:
    return Decoder(graphs, language_model("llama").state_dict())


def is_of_cache(item: torch.Tensor) -> bool:
    is_shape = item.dtype == torch.float32 and item.dim() == 4 and item.shape[2] == LENGTH
    return is_shape and item.untyped_storage().nbytes() > item.itemsize  # not one element in place of all


def bytes_of_caches() -> int:
    """Return the bytes of all memory with keys or values of as many positions as the cache has."""
    gc.collect()
    # Not isinstance: it asks lazy objects of other packages.
    tensors = [item for item in gc.get_objects() if type(item) is torch.Tensor and is_of_cache(item)]
    return sum(
        {item.untyped_storage().data_ptr(): item.untyped_storage().nbytes() for item in tensors}.values()
    )


def allocated_bytes(call: Any) -> list[int]:
    """Return what PyTorch's allocator hands out (positive) and takes back while a call runs."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = call()
    del kept
    events = profiler.profiler.kineto_results.events()
    return [event.nbytes() for event in events if event.name() == "[memory]"]


@pytest.mark.smoke
def test_the_graphs_of_a_decoder_have_one_cache_between_them(graphs: DecoderGraphs) -> None:
    caches = [item for name, item in graphs.constants.items() if name.startswith("decoder_cache")]
    one = sum(item.numel() * item.itemsize for item in caches)
    before = bytes_of_caches()

    decoder = Decoder(graphs, language_model("llama").state_dict())

    assert len(caches) == 4
    assert before == 0
    assert bytes_of_caches() == one
    decoder.generate(PROMPT, max_new_tokens=9)
    decoder.reset()
    assert bytes_of_caches() == one


def test_an_empty_cache_is_empty_again_after_a_reset(decoder: Decoder) -> None:
    first = decoder.feed(PROMPT)

    decoder.reset()

    state = decoder.executor()._engine._state.tensors
    assert all(not item.any() for item in state)
    assert all(item.is_contiguous() for item in state)
    assert torch.equal(decoder.feed(PROMPT), first)


def test_a_token_allocates_its_logits_and_nothing_that_stays(decoder: Decoder) -> None:
    token = PROMPT[:, :1]
    decoder.generate(PROMPT, max_new_tokens=3)
    decoder.feed(token), decoder.feed(token)  # the programs of calls are made

    found = [allocated_bytes(lambda: decoder.feed(token)) for _ in range(3)]

    logits = VOCABULARY * torch.float32.itemsize
    for events in found:
        assert [size for size in events if size > 8] == [logits]  # the others are numbers that are checked
    assert found[0] == found[1] == found[2]


def test_a_text_is_generated_without_an_allocation_for_each_token(decoder: Decoder) -> None:
    def generate(count: int) -> Any:
        return decoder.generate(PROMPT, max_new_tokens=count)

    generate(3), generate(3)

    found = [allocated_bytes(lambda count=count: generate(count)) for count in (3, 3, 40)]

    counts = [sum(size > 0 for size in events) for events in found]
    assert counts[0] == counts[1] == counts[2]


@pytest.mark.parametrize("backend", [None, "aten"])
def test_the_cache_of_any_executor_may_repeat_one_element(backend: str | None) -> None:
    class Sums(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("sums", torch.zeros(3, 5), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.sums.add_(x)
            return self.sums * 2

    x = torch.randn(3, 5)
    graph = extract_ir(Sums(), (x,))
    repeated = torch.full((), 0.5).expand(3, 5)

    made = IRExecutor(graph, {}, constants={"sums": repeated}, backend=backend)

    for _ in range(2):
        torch.testing.assert_close(made(x), (0.5 + x) * 2)
        torch.testing.assert_close(made(x), (0.5 + x + x) * 2)
        made.reset()
    assert repeated.unique().tolist() == [0.5]


class Phases(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("phases", torch.zeros(3, 5, dtype=torch.complex64), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.phases.mul_(x)
        return self.phases + 1


def test_a_repeated_element_is_copied_and_read_without_lazy_bits() -> None:
    x = torch.randn(3, 5)
    graph = extract_ir(Phases(), (x,))
    element = torch.tensor(1 + 2j, dtype=torch.complex64)

    made = IRExecutor(graph, {}, constants={"phases": element.expand(3, 5).conj()})
    element.zero_()

    torch.testing.assert_close(made(x), (1 - 2j) * x + 1)
    made.reset()
    torch.testing.assert_close(made(x), (1 - 2j) * x + 1)


def test_a_repeated_element_of_another_shape_or_dtype_is_refused() -> None:
    graph = extract_ir(Phases(), (torch.randn(3, 5),))

    for wrong in (torch.zeros(()).expand(3, 5), torch.zeros((), dtype=torch.complex64).expand(5, 3)):
        with pytest.raises(WeightError, match="phases"):
            IRExecutor(graph, {}, constants={"phases": wrong})
