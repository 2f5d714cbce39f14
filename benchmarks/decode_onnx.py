"""A Llama model as ONNX Runtime runs it best: its fused operators, and a cache that is written in place.

It is built by hand, as onnxruntime-genai builds it: one product for queries, keys and values; rotation,
update of the cache and attention in one `GroupQueryAttention`, whose cache is bound as input and output to
the same memory; norms fused with the additions before them. With weights of 8 and 4 bits, `MatMulNBits`
computes in int8 (``accuracy_level=4``), which is its quickest way. There are no kernels for bfloat16 on the
CPU.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

BITS = {"int8": 8, "int4": 4}
GROUP = 32
_FUSED = "com.microsoft"


def quantize(weight: torch.Tensor, bits: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return a matrix as `MatMulNBits` takes it: bytes ``[n, groups, bytes]``, and scales ``[n, groups]``."""
    rows, columns = weight.shape
    padded = torch.nn.functional.pad(weight.detach().float(), (0, -columns % GROUP)).view(rows, -1, GROUP)
    largest, middle = (1 << (bits - 1)) - 1, 1 << (bits - 1)
    scales = padded.abs().amax(-1, keepdim=True).clamp(min=1e-12) / largest
    numbers = ((padded / scales).round() + middle).to(torch.uint8)
    if bits == 4:  # the first of two numbers is in the low bits
        numbers = numbers[..., 0::2] | (numbers[..., 1::2] << 4)
    return numbers.contiguous().numpy(), scales[..., 0].contiguous().numpy()


@dataclass
class _Builder:
    """Nodes and weights of an ONNX graph."""

    form: str
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)

    def node(self, kind: str, inputs: list[str], name: str, domain: str = "", **attributes: Any) -> str:
        from onnx import helper

        outputs = attributes.pop("outputs", [name])
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=name, domain=domain, **attributes))
        return name

    def weight(self, name: str, array: Any) -> str:
        from onnx import numpy_helper

        content = (
            array.detach().contiguous().numpy() if isinstance(array, torch.Tensor) else np.asarray(array)
        )
        self.weights.append(numpy_helper.from_array(content, name))
        return name

    def linear(self, x: str, weight: torch.Tensor, name: str) -> str:
        if self.form not in BITS:
            return self.node("MatMul", [x, self.weight(f"{name}.weight", weight.t())], name)
        numbers, scales = quantize(weight, BITS[self.form])
        inputs = [
            x,
            self.weight(f"{name}.numbers", numbers),
            self.weight(f"{name}.scales", scales.reshape(-1)),
        ]
        rows, columns = weight.shape
        size = {"K": columns, "N": rows, "bits": BITS[self.form], "block_size": GROUP, "accuracy_level": 4}
        return self.node("MatMulNBits", inputs, name, _FUSED, **size)

    def norm(self, x: str, module: Any, name: str, added: str | None = None) -> tuple[str, str]:
        """Return the normalized value, and what was normalized: the sum with ``added``, if that is given."""
        weight, epsilon = self.weight(f"{name}.weight", module.weight), module.variance_epsilon
        if added is None:
            common = {"axis": -1, "epsilon": epsilon, "stash_type": 1}
            return self.node("SimplifiedLayerNormalization", [x, weight], name, **common), x
        outputs = [name, "", "", f"{name}.sum"]
        fused = "SkipSimplifiedLayerNormalization"
        self.node(fused, [x, added, weight], name, _FUSED, epsilon=epsilon, outputs=outputs)
        return name, f"{name}.sum"


def build(model: Any, form: str, length: int) -> Any:
    """Return an ONNX model: tokens and the filled part of a cache in, logits of the last token out."""
    from onnx import TensorProto, helper

    made, config = _Builder(form), model.config
    heads, pairs = config.num_attention_heads, config.num_key_value_heads
    size = config.hidden_size // heads
    positions = torch.arange(length)[None]
    cosines, sines = model.model.rotary_emb(torch.zeros(1, length, size), positions)
    rotation = [
        made.weight(name, item[0, :, : size // 2]) for name, item in (("cosines", cosines), ("sines", sines))
    ]
    x: str = made.node("Gather", [made.weight("embedding", model.model.embed_tokens.weight), "tokens"], "x")
    added, caches = None, []
    for index, layer in enumerate(model.model.layers):
        name = f"layers.{index}"
        y, x = made.norm(x, layer.input_layernorm, f"{name}.norm", added)
        projections = layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj
        packed = made.linear(y, torch.cat([item.weight for item in projections]), f"{name}.qkv")
        caches += [f"{name}.keys", f"{name}.values"]
        made.node(
            "GroupQueryAttention",
            [packed, "", "", *caches[-2:], "last", "total", *rotation],
            f"{name}.attention",
            _FUSED,
            outputs=[f"{name}.attention", *(f"new.{cache}" for cache in caches[-2:])],
            num_heads=heads,
            kv_num_heads=pairs,
            do_rotary=1,
        )
        added = made.linear(f"{name}.attention", layer.self_attn.o_proj.weight, f"{name}.out")
        y, x = made.norm(x, layer.post_attention_layernorm, f"{name}.second_norm", added)
        gate, up = (
            made.linear(y, getattr(layer.mlp, f"{part}_proj").weight, f"{name}.{part}")
            for part in ("gate", "up")
        )
        active = made.node("Mul", [gate, made.node("Sigmoid", [gate], f"{gate}.sigmoid")], f"{gate}.silu")
        product = made.node("Mul", [active, up], f"{name}.product")
        added = made.linear(product, layer.mlp.down_proj.weight, f"{name}.down")
    y, _ = made.norm(x, model.model.norm, "norm", added)
    y = made.node("Gather", [y, made.weight("end", np.array([-1]))], "last_row", axis=1)
    made.linear(y, model.lm_head.weight, "logits")
    cache = [1, pairs, length, size]
    value, numbers = helper.make_tensor_value_info, TensorProto.INT32
    inputs = [value("tokens", TensorProto.INT64, [1, "count"])]
    inputs += [value("last", numbers, [1]), value("total", numbers, [1])]
    inputs += [value(name, TensorProto.FLOAT, cache) for name in caches]
    outputs = [value("logits", TensorProto.FLOAT, [1, 1, config.vocab_size])]
    outputs += [value(f"new.{name}", TensorProto.FLOAT, cache) for name in caches]
    graph = helper.make_graph(made.nodes, "llama", inputs, outputs, made.weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(_FUSED, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


class OnnxDecoder:
    """A Llama model in ONNX Runtime, whose cache is memory that both inputs and outputs are bound to.

    Args:
        model: The model of transformers, in float32.
        form: ``"float32"``, or ``"int8"`` or ``"int4"`` for its weights.
        length: Positions of the cache.
        threads: The number of threads.

    Attributes:
        position: The number of positions of the cache that are in use.
    """

    def __init__(self, model: Any, form: str, length: int, threads: int) -> None:
        import onnx
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        with tempfile.TemporaryDirectory(prefix="npu-bench-") as folder:
            path = Path(folder, "model.onnx")
            # A file of protobuf has 2 GB at most.
            onnx.save(build(model, form, length), path, save_as_external_data=True, location="weights")
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        self.position = 0
        self._logits = torch.empty(1, 1, model.config.vocab_size)
        self._numbers = {name: torch.zeros(1, dtype=torch.int32) for name in ("last", "total")}
        self.caches = {
            item.name: torch.zeros(item.shape)
            for item in self._session.get_inputs()
            if item.name.startswith("layers.")
        }
        self._binding = self._session.io_binding()
        for name, item in {**self._numbers, **self.caches}.items():
            self._bind_input(name, item)
        for name, item in (("logits", self._logits), *self._new_caches()):
            self._binding.bind_output(name, "cpu", 0, np.float32, tuple(item.shape), item.data_ptr())

    def _new_caches(self) -> Iterator[tuple[str, torch.Tensor]]:
        return ((f"new.{name}", item) for name, item in self.caches.items())

    def _bind_input(self, name: str, item: torch.Tensor) -> None:
        kind = {torch.float32: np.float32, torch.int32: np.int32, torch.int64: np.int64}[item.dtype]
        self._binding.bind_input(name, "cpu", 0, kind, tuple(item.shape), item.data_ptr())

    def feed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Append tokens; return the logits after the last one, in memory that the next call writes to."""
        total = self.position + tokens.shape[1]
        self._numbers["last"].fill_(total - 1)
        self._numbers["total"].fill_(total)
        self._bind_input("tokens", tokens)
        self._session.run_with_iobinding(self._binding)
        self.position = total
        return self._logits[:, 0]

    def reset(self) -> None:
        """Empty the cache."""
        self.position = 0
