"""The private torch APIs that this package uses, each behind one function. No other module may use them."""

from __future__ import annotations

import contextlib
import functools
import logging
import operator
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

import torch

GETITEM = operator.getitem
OpOverload: TypeAlias = torch._ops.OpOverload
HigherOrderOperator: TypeAlias = torch._ops.HigherOrderOperator


@dataclass(frozen=True, slots=True)
class PytreeNode:
    """The functions of a registered container type that flatten and unflatten it."""

    type: type
    flatten: Callable[[Any], tuple[list[Any], Any]]
    unflatten: Callable[[list[Any], Any], Any]
    dump: Callable[[Any], Any]


def type_name(container: type) -> str:
    """Return the full name of a type, as structures store it."""
    return f"{container.__module__}.{container.__qualname__}"


def pytree_node(container: type) -> PytreeNode | None:
    """Return the registration of ``container`` with torch's pytrees, or None if it is a leaf."""
    from torch.utils import _pytree

    node = _pytree.SUPPORTED_NODES.get(container)
    if node is None:
        return None
    serialized = _pytree.SUPPORTED_SERIALIZED_TYPES.get(container)
    dump = (serialized and serialized.to_dumpable_context) or _identity
    load = (serialized and serialized.from_dumpable_context) or _identity

    def unflatten(parts: list[Any], context: Any) -> Any:
        return node.unflatten_fn(parts, load(context))

    return PytreeNode(container, node.flatten_fn, unflatten, dump)


def _identity(context: Any) -> Any:
    return context


def find_pytree_node(name: str) -> PytreeNode | None:
    """Return the registered container type whose full name is ``name``."""
    from torch.utils import _pytree

    for container in _pytree.SUPPORTED_NODES:
        if type_name(container) == name:
            return pytree_node(container)
    return None


def spec_parts(spec: Any) -> tuple[Any, Any, list[Any]]:
    """Return type (None at a leaf), context and children of a torch ``TreeSpec``."""
    # The children are a method or an attribute, depending on the release.
    return (
        spec.type,
        spec.context,
        list(spec.children() if hasattr(spec, "children") else spec.children_specs),
    )


def is_tree_spec(value: Any) -> bool:
    """Return whether ``value`` is a torch ``TreeSpec``."""
    from torch.utils import _pytree

    return isinstance(value, _pytree.TreeSpec)


def tree_leaves(tree: Any) -> list[Any]:
    """Return the leaves of a pytree."""
    from torch.utils import _pytree

    return list(_pytree.tree_leaves(tree))


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a pytree with ``function`` applied to every leaf."""
    from torch.utils import _pytree

    return _pytree.tree_map(function, tree)


def is_fake(tensor: torch.Tensor) -> bool:
    """Return whether ``tensor`` is a FakeTensor."""
    from torch._subclasses import FakeTensor

    return isinstance(tensor, FakeTensor)


def fake_mode_of(tensors: list[torch.Tensor]) -> Any:
    """Return the FakeTensorMode of ``tensors``, or a new one if none of them is fake."""
    from torch._subclasses import FakeTensorMode

    for tensor in tensors:
        if is_fake(tensor):
            return tensor.fake_mode  # type: ignore[attr-defined]
    return FakeTensorMode(allow_non_fake_inputs=True)


def fake_of(tensor: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
    """Return a FakeTensor like ``tensor``, of the mode of ``others``."""
    fake: torch.Tensor = fake_mode_of(others).from_tensor(tensor, static_shapes=True)
    return fake


@contextlib.contextmanager
def trial(tensors: list[torch.Tensor]) -> Iterator[None]:
    """Run ops on these FakeTensors without side effects: no guards and no new symbols are recorded.

    Raises:
        RuntimeError: The result of an op depends on a size that is known only at run time.
    """
    mode = fake_mode_of(tensors)
    env = mode.shape_env
    if env is None:
        with mode:
            yield
        return
    with mode, env.suppress_guards(), env.ignore_fresh_unbacked_symbols():
        yield


def is_statically_true(condition: Any) -> bool:
    """Return whether a comparison of sizes provably holds for all values of the symbols; adds no guard."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return condition if isinstance(condition, bool) else bool(statically_known_true(condition))


def are_sizes_equal(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Return whether sizes or strides are provably equal for all values of the symbols; adds no guard."""
    return len(left) == len(right) and all(
        size_expression(a) == size_expression(b) or is_statically_true(a == b)
        for a, b in zip(left, right, strict=True)
    )


def is_tracing() -> bool:
    """Return whether PyTorch is tracing, as torch.export does while a model runs."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    return get_proxy_mode() is not None


def is_wrapper(tensor: Any) -> bool:
    """Return whether ``tensor`` is of a subclass that wraps other tensors and can be flattened."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    return is_traceable_wrapper_subclass(tensor)


def wrapped_parts(tensor: Any) -> dict[str, torch.Tensor]:
    """Return the tensors that a wrapper subclass consists of, by name."""
    names, _ = tensor.__tensor_flatten__()
    return {name: getattr(tensor, name) for name in names}


def replace_parts(tensor: Any, parts: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return a tensor of the same wrapper subclass that consists of other tensors."""
    _, context = tensor.__tensor_flatten__()
    made: torch.Tensor = type(tensor).__tensor_unflatten__(
        dict(parts), context, tensor.size(), tensor.stride()
    )
    return made


def plain_storage_id(tensor: torch.Tensor) -> int:
    """Return an id of the storage of a strided tensor, valid while the storage is alive."""
    return int(tensor.untyped_storage()._cdata)  # not data_ptr(), which is 0 for fake and meta tensors


def is_functorch_wrapper(tensor: torch.Tensor) -> bool:
    """Return whether ``tensor`` is a wrapper of a ``torch.func`` transform (``vmap``, ``grad``)."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def is_functorch_call(target: Any) -> bool:
    """Return whether an FX node's target is a call that torch.export leaves of a ``torch.func`` transform."""
    return getattr(target, "__module__", "") == "torch._functorch.predispatch"


def can_be_functionalized(op: OpOverload) -> bool:
    """Return whether PyTorch has a kernel that functionalizes ``op``, which writes."""
    name = op._schema.name + (f".{op._schema.overload_name}" if op._schema.overload_name else "")
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "Functionalize")


def functional_call(
    op: OpOverload, arguments: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return target, args and kwargs of an FX node that calls ``op``, which writes, on copies.

    The node returns the results of ``op`` (None if it has none), then the mutated copies.
    """
    from torch._higher_order_ops.auto_functionalize import auto_functionalized

    by_name = {arg.name: arguments.get(arg.name, arg.default_value) for arg in op._schema.arguments}
    return auto_functionalized, (op,), by_name


def is_functional_call(target: Any) -> bool:
    """Return whether an FX node's target is the target of `functional_call`."""
    return isinstance(target, HigherOrderOperator) and target.name() == "auto_functionalized"  # type: ignore[no-untyped-call]


def is_functional_call_on_views(target: Any) -> bool:
    """Return whether an FX node's target calls an op on copies of bases, from which it creates the views.

    PyTorch's own functionalization leaves such calls of custom ops (torch 2.13).
    """
    return isinstance(target, HigherOrderOperator) and target.name() == "auto_functionalized_v2"  # type: ignore[no-untyped-call]


def higher_order_op(name: str) -> HigherOrderOperator | None:
    """Return the higher-order operator of this name, such as ``cond``; None if there is none."""
    import torch._higher_order_ops  # registers them

    op = torch._ops._higher_order_ops.get(name)
    return op if isinstance(op, HigherOrderOperator) else None


def has_side_effects(op: Any) -> bool:
    """Return whether PyTorch registers ``op`` as one with side effects."""
    from torch._higher_order_ops import effects
    from torch.fx.node import _side_effectful_functions

    if op in _side_effectful_functions:
        return True
    if hasattr(effects, "_get_effect"):
        return effects._get_effect(op) is not None
    until_2_9: Any = effects
    return until_2_9.get_effect_key(op, (), {}) is not None


def below_autograd() -> Any:
    """Return a context in which control-flow operators only run; above autograd they trace their bodies."""
    return torch._C._AutoDispatchBelowAutograd()


def without_modes() -> Any:
    """Return a context without dispatch modes: real tensors stay real while PyTorch is tracing."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def overloads_of(namespace: str, name: str) -> list[OpOverload]:
    """Return every overload of the op ``namespace.name``; none if there is no such op."""
    packet = getattr(getattr(torch.ops, namespace), name, None)
    return [getattr(packet, overload) for overload in packet.overloads()] if packet is not None else []


def is_composite(op: OpOverload) -> bool:
    """Return whether ``op`` is implemented by other ops for all backends and autograd (CompositeImplicit)."""
    return op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)


def inline_decomposition(module: torch.fx.GraphModule, node: torch.fx.Node) -> None:
    """Replace one call of a composite op in an FX graph with FakeTensors by the ops that it consists of."""
    from torch.fx.experimental.proxy_tensor import make_fx

    function = _decomposition_of(node.target)
    fakes = [item.meta["val"] for item in node.all_input_nodes]

    def parts(*tensors: Any) -> Any:
        values = dict(zip(node.all_input_nodes, tensors, strict=True))
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
        return function(*args, **kwargs)

    with trial(fakes), torch.no_grad():
        traced = make_fx(parts)(*fakes)
    arguments = (part for part in traced.graph.nodes if part.op == "placeholder")
    values: dict[torch.fx.Node, torch.fx.Node] = dict(zip(arguments, node.all_input_nodes, strict=True))
    with module.graph.inserting_before(node):
        for part in traced.graph.nodes:
            if part.op == "call_function":
                values[part] = module.graph.node_copy(part, values.__getitem__)
                values[part].meta = {**node.meta, **part.meta}
            elif part.op == "output":
                _replace(node, torch.fx.map_arg(part.args[0], values.__getitem__))


def _decomposition_of(target: Any) -> Callable[..., Any]:
    """Return the function that decomposes a composite op, or a call of `is_functional_call_on_views`."""
    from torch._higher_order_ops.auto_functionalize import auto_functionalized_v2_dense

    if is_functional_call_on_views(target):
        return auto_functionalized_v2_dense
    return functools.partial(target._op_dk, torch._C.DispatchKey.CompositeImplicitAutograd)


def _replace(node: torch.fx.Node, result: Any) -> None:
    """Replace the uses of ``node`` by ``result``: one node, or one for each of several results."""
    if isinstance(result, torch.fx.Node):
        node.replace_all_uses_with(result)
    else:
        for user in list(node.users):
            assert user.target is GETITEM
            user.replace_all_uses_with(result[user.args[1]])
            node.graph.erase_node(user)
    node.graph.erase_node(node)


def accepts_calls_of(op: OpOverload, schema: str) -> bool:
    """Return whether every call that conforms to an older ``schema`` is valid for the present ``op``."""
    try:
        present: Any = op._schema
        return bool(present.is_backward_compatible_with(torch._C.parse_schema(schema)))
    except RuntimeError:
        return False  # not a schema, or of types this torch does not know


def size_expression(size: Any) -> Any:
    """Return a size as an ``int``, or as the SymPy expression of a SymInt."""
    if isinstance(size, int):
        return size
    expression = size.node.expr if isinstance(size, torch.SymInt) else size
    return int(expression) if expression.is_Integer else expression


def nonempty_stride(stride: Any) -> Any:
    """Return a stride or its expression for a non-empty tensor, in which ``max(1, size)`` is ``size``."""
    expression = size_expression(stride)
    if isinstance(expression, int):
        return expression
    from torch.utils._sympy.functions import Max

    replacements = {
        part: part.args[1 - part.args.index(1)]
        for part in expression.atoms(Max)
        if len(part.args) == 2 and 1 in part.args
    }
    return expression.xreplace(replacements)


def is_data_dependent(symbol: Any) -> bool:
    """Return whether a SymPy symbol is a size that depends on the content of a tensor."""
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    return bool(symbol_is_type(symbol, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)))


def size_ranges(program: Any) -> dict[str, tuple[int | None, int | None]]:
    """Return the ranges that a program was traced for, by symbol; None for an open end.

    While it traces, torch.export assumes that sizes of tensors are at least 2, even if the program states a
    lower bound; under `relaxed_size_assumptions`, at least 1 (torch 2.13). For a loaded program it is
    unknown how it was traced.
    """
    shape_env = _shape_env_of(program)
    traced = shape_env.var_to_range if shape_env is not None and shape_env.var_to_sources else {}
    sizes = {
        size.node.expr
        for node in program.graph.nodes
        if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor)
        for size in node.meta["val"].shape
        if isinstance(size, torch.SymInt)
    }
    ranges = {}
    # Beyond the traced range no guards were recorded, so the stated one is cut to it.
    for symbol, stated in program.range_constraints.items():
        low, high = (int(end) if end.is_Integer else None for end in (stated.lower, stated.upper))
        if symbol in traced and traced[symbol].lower.is_Integer:
            low = max(low or 0, int(traced[symbol].lower)) if low is not None else int(traced[symbol].lower)
        elif symbol in sizes and not traced:
            low = max(low or 0, 2)
        if any(size.xreplace({symbol: 0}) == 0 for size in sizes):  # size 0 is never traced
            low = max(low or 0, 1)
        ranges[str(symbol)] = (low, None if high is not None and high >= 2**62 else high)
    return ranges


def traced_ranges(graph: torch.fx.Graph) -> dict[Any, Any]:
    """Return the ranges that an FX graph was traced for, by SymPy symbol."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and is_fake(value) and value.fake_mode.shape_env is not None:  # type: ignore[attr-defined]
            return dict(value.fake_mode.shape_env.var_to_range)  # type: ignore[attr-defined]
    return {}


def guard_code(program: Any) -> list[str]:
    """Return the guards of a program loaded from a file, as Python code; for others see `size_guards`."""
    shape_env = _shape_env_of(program)
    is_loaded = shape_env is not None and not shape_env.var_to_sources
    return list(getattr(program, "_guards_code", None) or []) if is_loaded else []


_RELATIONS = {
    "Equality": "==",
    "Unequality": "!=",
    "LessThan": "<=",
    "StrictLessThan": "<",
    "GreaterThan": ">=",
    "StrictGreaterThan": ">",
}


def size_guards(program: Any, symbols: set[Any]) -> list[tuple[str, Any, Any]]:
    """Return the guards of torch.export on these symbols: relation, left and right side.

    Guards that follow from the ranges of the symbols are left out. Of a disjunction, the part that held for
    the example is returned, which implies it.

    Raises:
        ValueError: A guard is not a relation between numbers; states which.
    """
    from sympy.logic.boolalg import to_nnf  # type: ignore[import-untyped]
    from torch.utils._sympy.value_ranges import bound_sympy

    shape_env = _shape_env_of(program)
    if shape_env is None:
        return []
    has_backed = hasattr(shape_env, "backed_var_to_val")  # where it exists, the other name warns
    examples = shape_env.backed_var_to_val if has_backed else shape_env.var_to_val
    guards = []
    for guard in shape_env.guards:
        for expression in _relations(to_nnf(shape_env.replace(guard.expr), simplify=False), examples):
            if not expression.free_symbols <= symbols:
                continue
            truth = bound_sympy(expression, program.range_constraints)
            if not (truth.is_singleton() and bool(truth.lower)):
                guards.append((_RELATIONS[type(expression).__name__], *expression.args))
    return guards


def _relations(expression: Any, examples: Mapping[Any, Any]) -> Iterator[Any]:
    """Yield relations whose conjunction equals ``expression``, or implies it and holds for the examples."""
    kind = type(expression).__name__
    if kind in _RELATIONS:
        yield expression
    elif kind == "And":
        for part in expression.args:
            yield from _relations(part, examples)
    elif kind == "Or":
        held = [part for part in expression.args if part.xreplace(dict(examples)) == True]  # noqa: E712 - SymPy's
        if not held:
            raise ValueError(expression)
        yield from _relations(held[0], examples)
    elif kind != "BooleanTrue":
        raise ValueError(expression)


def is_float_symbol(symbol: Any) -> bool:
    """Return whether a SymPy symbol is a float."""
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    return bool(symbol_is_type(symbol, (SymT.FLOAT, SymT.UNBACKED_FLOAT)))


def relaxed_size_assumptions() -> Any:
    """Return a context in which torch.export assumes that symbolic sizes are at least 1, not 2."""
    from torch.fx.experimental import _config

    return _config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]


def dim_names(program: Any) -> dict[str, str]:
    """Return the names of the ``torch.export.Dim`` that symbols of a program were declared with."""
    shape_env = _shape_env_of(program)
    if shape_env is None:
        return {}
    names = shape_env.source_name_to_debug_name
    return {
        str(symbol): str(names[source.name])
        for symbol, sources in shape_env.var_to_sources.items()
        for source in sources
        if names.get(source.name)
    }


def _shape_env_of(program: Any) -> Any:
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and is_fake(value):
            return value.fake_mode.shape_env  # type: ignore[attr-defined]
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return value.node.shape_env
    return None


class FakeEnvironment:
    """An environment of FakeTensors with symbolic sizes, in which ops run and their guards are recorded.

    The symbols are those of a graph, so they may be 0 or 1 if their ranges allow it.
    """

    def __init__(self) -> None:
        from torch._subclasses import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self._env = ShapeEnv()
        self._names: dict[Any, Any] = {}
        self.mode = FakeTensorMode(shape_env=self._env)

    def symbolic_size(self, name: str, low: int | None, high: int | None, example: int) -> Any:
        """Return a new SymInt; PyTorch follows ``example`` if it must decide a branch."""
        import sympy  # type: ignore[import-untyped]
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic, StrictMinMaxConstraint
        from torch.utils._sympy.value_ranges import ValueRanges

        ends = -sympy.oo if low is None else low, sympy.oo if high is None else high
        symbol = self._env.create_symbol(
            example,
            ConstantSource(name),
            DimDynamic.DYNAMIC,
            StrictMinMaxConstraint(warn_only=False, vr=ValueRanges(*ends)),
            positive=True if low is not None and low > 0 else None,
            do_not_specialize_zero_one=True,
        )
        self._names[symbol] = sympy.Symbol(name)
        return self._env.create_symintnode(symbol, hint=example)

    def unbacked_number(self, kind: str) -> Any:
        """Return an unbacked symbolic ``int``, ``float`` or ``bool``."""
        create: dict[str, Callable[[], Any]] = {
            "int": self._env.create_unbacked_symint,
            "float": self._env.create_unbacked_symfloat,
            "bool": self._env.create_unbacked_symbool,
        }
        return create[kind]()

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Run ops on the FakeTensors of this environment, and create new ones."""
        with (
            self.mode,
            relaxed_size_assumptions(),
            self._env.ignore_fresh_unbacked_symbols(),
            # Dropped: the exception says the same.
            hold_log(lambda _record: None, ("torch", "torch._subclasses.fake_tensor")),
        ):
            yield

    @property
    def assumptions(self) -> list[str]:
        """The guards of ops on symbolic sizes that do not follow from their ranges."""
        return [str(relation.xreplace(self._names)) for relation in self._assumed]

    @property
    def assumes_bounds_only(self) -> bool:
        """True if every guard states that a size is below or above a bound, or not 0 or 1."""
        return all(map(_is_bound, self._assumed))

    @property
    def _assumed(self) -> list[Any]:
        return [guard.expr for guard in self._env.guards]


@contextlib.contextmanager
def hold_log(
    hold: Callable[[logging.LogRecord], None], names: Collection[str] | None = None
) -> Iterator[None]:
    """Pass each warning and error that PyTorch logs in this thread to ``hold``, not to stderr.

    Nothing is held if the user has configured the logs, by ``TORCH_LOGS`` or by `torch._logging.set_logs`.

    Args:
        hold: Called once with each record.
        names: The loggers whose handlers are filtered; None for all that PyTorch has registered.
    """
    from torch._logging import _internal

    state = _internal.log_state
    if state.log_qname_to_level or state.artifact_names:
        yield
        return
    thread = threading.get_ident()
    seen: set[int] = set()

    def passes(record: logging.LogRecord) -> bool:
        if record.thread != thread or record.levelno < logging.WARNING:
            return True
        if id(record) not in seen:  # several handlers get it
            seen.add(id(record))
            hold(record)
        return False

    loggers = map(logging.getLogger, _internal.log_registry.get_log_qnames() if names is None else names)
    handlers = {handler for logger in loggers for handler in logger.handlers}
    for handler in handlers:
        handler.addFilter(passes)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(passes)


def printing_module() -> ModuleType:
    """Return the module of torch.export that prints a partial graph when it fails (torch 2.13)."""
    import torch.export._trace

    return torch.export._trace


def _is_bound(relation: Any) -> bool:
    kind = type(relation).__name__
    if kind == "Unequality":
        return any(side in (0, 1) for side in relation.args) and "Mod" not in str(relation)
    return kind in _RELATIONS and kind != "Equality"


def negated_view(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``-tensor`` as a view, with the lazy neg bit set."""
    negated: torch.Tensor = torch._neg_view(tensor)
    return negated
