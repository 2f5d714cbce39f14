"""The benchmark of decoding: its contenders, its report and its page."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from npu_runtime import Decoder
from tests.support.language_models import VOCABULARY, language_model
from tests.support.rows import each_row
from tests.support.scripts import forgotten, imported

PROMPT = torch.randint(3, VOCABULARY, (1, 11), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Iterator[None]:
    with forgotten():
        yield


def small_case() -> Any:
    # ONNX Runtime asks for heads of 16 elements.
    model = language_model("llama", num_attention_heads=2, num_key_value_heads=1)
    return imported("decode_contenders").Case(model, PROMPT[:, :-1], PROMPT[:, -1:], 64, 8, 1)


@each_row(
    "name",
    [
        *("eager", "ours", "ours-int8", "ours-int8-dynamic", "ours-int4-dynamic"),
        *("onnxruntime", "onnxruntime-int8", "onnxruntime-int4"),
    ],
)
def test_a_contender_gives_the_logits_of_the_model_and_again_when_it_is_set_back(name: str) -> None:
    contender = imported("decode_contenders").CONTENDERS[name]
    if contender.missing():
        pytest.skip(contender.missing())
    case = small_case()

    with torch.no_grad():
        made = contender.make(case)
        made.feed(case.prompt)
        first = made.feed(case.token).clone()
        made.feed(case.token)
        made.position = case.prompt.shape[1]
        again = made.feed(case.token)
        expected = case.model(PROMPT).logits[:, -1]

    assert made.position == 11
    torch.testing.assert_close(again, first, rtol=0, atol=0)
    wrong = imported("runtime_worker").difference(first, expected)
    assert wrong <= (contender.tolerance or 1e-5)


def test_the_cache_of_onnx_runtime_is_written_in_place() -> None:
    pytest.importorskip("onnxruntime")
    case = small_case()
    with torch.no_grad():
        made = imported("decode_onnx").OnnxDecoder(case.model, "float32", 64, 1)

        made.feed(case.prompt)

    filled = [int(item.abs().sum((1, 3)).gt(0).sum()) for item in made.caches.values()]
    assert len(filled) == 4
    assert set(filled) == {10}


def test_a_model_in_bfloat16_is_not_for_onnx_runtime() -> None:
    contenders = imported("decode_contenders")
    case = contenders.Case(language_model("llama").to(torch.bfloat16), PROMPT, PROMPT[:, :1], 64, 8, 1)

    with pytest.raises(NotImplementedError, match=r"no kernels for torch.bfloat16 on the CPU"):
        contenders.CONTENDERS["onnxruntime"].make(case)


@each_row("bits, largest_error", {"8": (8, 1 / 254), "4": (4, 1 / 14)})
def test_weights_of_onnx_runtime_are_off_by_half_a_scale(bits: int, largest_error: float) -> None:
    onnx = imported("decode_onnx")
    weight = torch.randn(6, 40)

    numbers, scales = (torch.from_numpy(item) for item in onnx.quantize(weight, bits))

    middle = 1 << (bits - 1)
    if bits == 4:
        numbers = torch.stack((numbers & 15, numbers >> 4), -1).flatten(2)
    found = ((numbers.int() - middle) * scales[..., None]).flatten(1)[:, :40]
    assert tuple(scales.shape) == (6, 2)
    assert (found - weight).abs().max() <= largest_error * weight.abs().max() * (1 + 1e-5)


def test_a_token_reads_all_weights_but_the_embedding_and_the_valid_cache() -> None:
    models, case = imported("decode_models"), small_case()
    with torch.no_grad():
        decoder: Decoder = imported("decode_contenders").CONTENDERS["ours"].make(case)

    found = models.read_bytes(decoder, 16)

    embedding = case.model.model.embed_tokens.weight.nbytes
    weights = sum(item.nbytes for item in case.model.state_dict().values()) - embedding
    assert found == weights + models.cache_bytes(decoder.graphs) // 4


def overhead(us: float) -> dict[str, float]:
    return {"overhead_us": us, "fed_overhead_us": us + 200}


def contender(seconds: float, **more: Any) -> dict[str, Any]:
    return {"seconds": seconds, "difference": 0.0, "ready_seconds": 2.0, **more}


CASE = {
    "size": "125M",
    "form": "float32",
    "threads": 1,
    "bandwidth": 100.0,
    "contenders": {
        "eager": contender(1.0, prompt_seconds=4.0),
        "compile": contender(0.8),
        "onnxruntime": contender(0.5, prompt_seconds=3.0),
        "onnxruntime-int8": {"error": "fails"},
        "ours": contender(0.4, prompt_seconds=3.3, read_bytes=36.0, launches=300, **overhead(40.0)),
        "ours-int8": contender(0.2, prompt_seconds=2.0, read_bytes=10.0, launches=310, **overhead(60.0)),
    },
}
MEMORY = {
    "size": "15M",
    "form": "int8",
    "weights_bytes": 900,
    "cache_bytes": 100,
    "held_bytes": 1040,
    "peak_bytes": 1100,
    "token_bytes": 128,
    "logits_bytes": 128,
}
LENGTHS = {
    "size": "15M",
    "form": "float32",
    "threads": 1,
    "contenders": {
        f"{name}/{length}": contender(seconds)
        for name, length, seconds in (
            ("eager", 128, 2.0),
            ("eager", 4096, 4.0),
            ("ours", 128, 1.0),
            ("ours", 4096, 1.02),
        )
    },
}
RESULTS = {
    "cpu": "a processor",
    "torch": "2",
    "python": "3",
    "date": "2026-01-01",
    "load": 0.5,
    "prompt": 512,
    "valid": 64,
    "cases": [CASE],
    "lengths": [LENGTHS],
    "memory": [MEMORY],
}


def test_bars_are_met_or_missed_by_the_worst_case() -> None:
    found = {bar.text: bar for bar in imported("decode_report").bars(RESULTS)}

    verdicts = {text: bar.verdict for text, bar in found.items()}
    assert verdicts == {
        "time of a token to eager": "met",
        "time of a token to torch.compile": "met",
        "time of a token to ONNX Runtime": "not measured",
        "time of a token to that of copying what it reads": "missed",
        "time of the prompt to the best of the others": "missed",
        "time of a token with the longest cache to that with the shortest": "met",
        "memory to that of weights and cache": "met",
        "bytes allocated for a token to those of its logits": "met",
        "us of a token beyond its kernels, 12 layers": "missed",
    }
    copying = found["time of a token to that of copying what it reads"]
    assert copying.values == pytest.approx({"125M, float32, 1 thread": 1 / 0.9, "125M, int8, 1 thread": 2.0})
    prompts = found["time of the prompt to the best of the others"]
    assert prompts.values == pytest.approx({"125M, float32, 1 thread": 1.1, "125M, int8, 1 thread": 0.5})


def test_the_page_has_tables_of_what_was_measured_and_targets_in_words(tmp_path: Path) -> None:
    path = tmp_path / "page.md"

    imported("decode_page").write_page(RESULTS, path)

    text = path.read_text()
    assert "Measured on a processor, with PyTorch 2" in text
    assert "| 125M, float32, 1 thread | 400 ms | 0.40 | 0.50 | 0.80 | 0.90 | 3.3 s | 1.10 |" in text
    assert "| 125M, int8, 1 thread | 200 ms | 0.20 | 0.25 | - | 0.50 | 2 s | 0.50 |" in text
    assert "| 15M, int8 | 900 B | 100 B | 1.04 KB | 1.04 | 1.1 KB | 128 B | 128 B |" in text
    assert "| 15M, float32, 1 thread | 4096 | 4 s | 1.02 s | 1.02 |" in text
    assert "| 125M, int8, 1 thread | 310 | 60 us |" in text
    assert "- Time of a token to eager: at most 0.9, met (0.2 to 0.4)." in text
    assert "missed (40 to 60): 125M, int8, 1 thread 60." in text
    assert "| ONNX Runtime, int8 | - |  |  |  | fails |" in text
