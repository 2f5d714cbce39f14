"""Backends of ``torch.compile``: AOTAutograd and boxed functions."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from npu_ir._torch.fake_kernels import corrected_fakes


def compile_with_autograd(
    module: Any,
    inputs: Any,
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    inference: Callable[..., Any],
) -> Callable[..., Any]:
    """Return the compiled replacement of a module for ``torch.compile``, made by AOTAutograd.

    Each compiler gets a functional FX graph with FakeTensors as metadata, and its example inputs.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import default_partition
    from torch._inductor import config

    backend = aot_autograd(
        fw_compiler=forward,
        bw_compiler=backward,
        inference_compiler=inference,
        partition_fn=default_partition,
        keep_inference_input_mutations=False,
    )
    # Version 1 of auto_functionalized passes the written tensors themselves, version 2 their bases and view
    # recipes.
    with config.patch(enable_auto_functionalized_v2=False), corrected_fakes():
        compiled: Callable[..., Any] = backend(module, inputs)
    return compiled


def guarded_inputs() -> tuple[int, ...]:
    """Return the positions of parameters and buffers among the inputs of the graph that is compiled.

    TorchDynamo compares their types before each call, and AOTAutograd passes them on unchanged.
    """
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    metadata = context and context.fw_metadata
    return tuple(metadata.static_input_indices or ()) if metadata else ()


def overwritten_inputs() -> dict[int, int]:
    """Return the positions of inputs of the graph that is compiled that are written to.

    Each has the position of the result that is its new content. Whoever returns the input itself there, has
    written to it already.
    """
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    metadata = context and context.fw_metadata
    if not metadata:
        return {}
    places = enumerate(metadata.mutated_inp_runtime_indices)
    infos = metadata.input_info
    return {
        place: result
        for result, place in places
        if infos[place].mutates_data and not infos[place].mutates_metadata and not infos[place].requires_grad
    }


@contextlib.contextmanager
def undecomposed_composite_ops() -> Iterator[None]:
    """Trace composite ops such as ``linear`` without decomposition; gradients would need the parts."""
    from torch.export.exported_program import _override_composite_implicit_decomp

    registered = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
    # Those of other libraries may be registered anew, with another schema.
    others = {name.partition(".")[0] for name in registered if not name.startswith("aten::")}
    schemas = [str(item) for name in others for item in torch._C._jit_get_schemas_for_operator(name)]
    with _override_composite_implicit_decomp(_kept_ops(frozenset(registered), frozenset(schemas))):
        yield


@functools.lru_cache(maxsize=1)
def _kept_ops(_registered: frozenset[str], _schemas: frozenset[str]) -> Mapping[Any, Callable[..., Any]]:
    """Return the composite ops that PyTorch can trace whole; to find those takes 50 ms."""
    from torch.export.exported_program import _split_decomp_table_to_cia_and_python_decomp

    kept: Mapping[Any, Callable[..., Any]] = _split_decomp_table_to_cia_and_python_decomp({})[0]
    return kept


def box_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` in boxed form: it takes one list of arguments, which it may clear."""
    from torch._functorch.aot_autograd import make_boxed_func  # type: ignore[attr-defined]

    boxed_function: Callable[..., Any] = make_boxed_func(function)
    return boxed_function
