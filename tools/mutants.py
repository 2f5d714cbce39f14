"""Mutants: small wrong edits of functions, in Python by its parser, in C++ by the shape of a line."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Edit = tuple[str, int, int, str]  # operator, first byte, end, the text instead

COMPARISONS = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
COMPARISONS |= {other: one for one, other in COMPARISONS.items()}
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult}
FUNCTIONS = {"any": "all", "all": "any", "min": "max", "max": "min"}
HEADS = {ast.If: "test", ast.While: "test", ast.For: "iter", ast.Match: "subject"}
WHOLE = (ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)

CPP_OPPOSITES = (("<", "<="), (">", ">="), ("==", "!="), ("&&", "||"), ("+", "-"))
CPP_KINDS = {"&&": "logic", "||": "logic", "+": "arithmetic", "-": "arithmetic"}  # others compare
CPP_FUNCTION = re.compile(r"^[A-Za-z][^;=#]*?((?:\w+::)*~?\w+)\(")
CPP_CONDITION = re.compile(
    r"^\s*(?:\} else )?(?:if|while) \((.*?)\) (?:\{|return\b|continue;|break;|\+\+|--).*$"
)
CPP_RETURN = re.compile(r"^\s*return ([^;{}]+);$")
CPP_CALL = re.compile(
    r"^\s*((?:NPU_TRY\(.*\)|[\w.>\[\]-]+ [+|-]?= [^;]+|(?:\+\+|--)[\w.>\[\]-]+|[a-z][\w.>-]*\(.*\));)$"
)
CPP_SWITCH = """#include <cstdlib>
#pragma GCC diagnostic ignored "-Wparentheses"
namespace {
[[maybe_unused]] bool npu_mutant(int id) {
  static const char* chosen = std::getenv("NPU_MUTANT");
  static const int number = chosen ? std::atoi(chosen) : 0;
  return number == id;
}
}  // namespace
"""


@dataclass(frozen=True, slots=True)
class Mutant:
    """An edit, identified by what stays when code around it changes or the function moves.

    Args:
        path: The file, from the root of the repository.
        scope: The qualified name of the function.
        statement: The statement, or the head of a compound one, on one line.
        operator: What is changed, and to what.
        occurrence: Of this operator in such statements of the function, from 0.
        line: Where the statement begins in this version of the code.
        last_line: Where the edit ends.
        edit: First byte, end, and the text instead, in this version.
    """

    path: str
    scope: str
    statement: str
    operator: str
    occurrence: int
    line: int = field(compare=False)
    last_line: int = field(compare=False)
    edit: tuple[int, int, str] = field(compare=False)

    def applied_to(self, source: bytes) -> bytes:
        start, end, text = self.edit
        return source[:start] + text.encode() + source[end:]


def find_mutants(root: Path, path: Path) -> list[Mutant]:
    """Return all mutants of a file."""
    source = path.read_bytes()
    seen: Counter[tuple[str, str, str]] = Counter()
    found = []
    statements = python_statements(source) if path.suffix == ".py" else cpp_statements(source)
    for scope, statement, line, edits in statements:
        for operator, start, end, text in edits:
            key = (scope, statement, operator)
            name = str(path.relative_to(root))
            last_line = source.count(b"\n", 0, end) + 1
            found.append(Mutant(name, *key, seen[key], line, last_line, (start, end, text)))
            seen[key] += 1
    return found


def python_statements(source: bytes) -> Iterator[tuple[str, str, int, list[Edit]]]:
    """Yield function, text, line and edits of the statements in functions; never of ``assert``."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    for scope, statement in own_statements(ast.parse(source)):
        part = HEADS.get(type(statement))
        head = statement if isinstance(statement, WHOLE) else part and getattr(statement, part)
        edits = [(name, *span(node), new) for node, name, new in deletions(statement)]
        if head is not None:
            found = changes(head, is_condition=part == "test")
            edits += [(name, *span(node), new) for node, name, new in found]
        if edits:
            text = f"{type(statement).__name__} {ast.unparse(head or statement)}"
            yield scope, text, statement.lineno, edits


def own_statements(tree: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.stmt]]:
    """Yield the statements of functions with the qualified name of their innermost function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from own_statements(node, f"{scope}.{node.name}".lstrip("."))
            continue
        if isinstance(node, ast.stmt) and scope and not isinstance(tree, ast.ClassDef):
            yield scope, node
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from own_statements(node, scope)


def deletions(statement: ast.stmt) -> Iterator[tuple[ast.stmt, str, str]]:
    """Yield the statement itself where the function can do without it."""
    match statement:
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Delete() | ast.Continue():
            yield statement, "statement: deleted", "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield statement, "statement: deleted", "pass"


def changes(head: ast.AST, *, is_condition: bool) -> Iterator[tuple[ast.expr, str, str]]:
    """Yield expressions in a statement, what is done to them, and their text then; texts and types stay."""
    if is_condition and isinstance(head, ast.expr) and not isinstance(head, ast.Compare):
        yield head, "condition: negated", f"(not ({ast.unparse(head)}))"
    if isinstance(head, ast.Return) and head.value is not None and not isinstance(head.value, ast.Constant):
        yield head.value, "result: None", "None"
    for node in within(head):
        if (changed := changed_operator(node)) is not None:
            yield node, *changed
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield node, f"constant: {node.value} -> {node.value + 1}", str(node.value + 1)
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield node, f"constant: {node.value} -> {not node.value}", str(not node.value)
        elif isinstance(node, ast.Call):
            yield from changed_calls(node)


def within(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions of a statement, but not what is in formatted texts and annotations."""
    if isinstance(node, ast.expr):
        yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr) and name != "annotation":
                yield from within(child)


def changed_operator(node: ast.expr) -> tuple[str, str] | None:
    """Return what changes, and the text of the expression with another operator."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            new = COMPARISONS[type(op)]
            kind, other = "comparison", ast.Compare(node.left, [new()], node.comparators)
        case ast.BoolOp(op=op):
            new = ast.Or if isinstance(op, ast.And) else ast.And
            kind, other = "logic", ast.BoolOp(new(), node.values)
        case ast.BinOp(op=op) if type(op) in ARITHMETIC and not (is_text(node.left) or is_text(node.right)):
            new = ARITHMETIC[type(op)]
            kind, other = "arithmetic", ast.BinOp(node.left, new(), node.right)
        case ast.UnaryOp(op=ast.Not()):
            return "condition: without not", f"({ast.unparse(node.operand)})"
        case _:
            return None
    return f"{kind}: {type(op).__name__} -> {new.__name__}", f"({ast.unparse(other)})"


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def changed_calls(node: ast.Call) -> Iterator[tuple[ast.expr, str, str]]:
    """Yield a call of another function, without its last argument, and with the first two swapped."""
    if isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
        yield node.func, f"function: {node.func.id} -> {FUNCTIONS[node.func.id]}", FUNCTIONS[node.func.id]
    if node.keywords:
        last = node.keywords[-1]
        shorter = ast.Call(node.func, node.args, node.keywords[:-1])
        yield node, f"arguments: without {last.arg}", ast.unparse(shorter)
    elif len(node.args) > 1:
        yield node, "arguments: without the last", ast.unparse(ast.Call(node.func, node.args[:-1], []))
        swapped = [node.args[1], node.args[0], *node.args[2:]]
        yield node, "arguments: first two swapped", ast.unparse(ast.Call(node.func, swapped, node.keywords))


def cpp_statements(source: bytes) -> Iterator[tuple[str, str, int, list[Edit]]]:
    """Yield function, text, line and edits of the lines that are one statement, or the head of one.

    An edit keeps what stands there, and chooses at run time: all mutants are in one build. ``@`` stands
    for the number of the mutant.
    """
    scope, start, previous = "", 0, ";"
    for number, line in enumerate(source.decode().splitlines(keepends=True), 1):
        text, first = line.rstrip("\n"), start
        start += len(line.encode())
        if found := CPP_FUNCTION.match(text):
            is_for_host = not re.search(r"constexpr|__device__|__global__|DEVICE", previous + text)
            scope = found[1] if is_for_host else ""
        begins, previous = previous.rstrip().endswith((";", "{", "}", ":")), text
        if not scope or text.lstrip().startswith(("//", "#")) or "constexpr" in text or not text.isascii():
            continue
        if begins and (edits := [(name, first + a, first + b, new) for name, a, b, new in cpp_edits(text)]):
            yield scope, text.strip(), number, edits


def cpp_edits(line: str) -> Iterator[Edit]:
    if (found := CPP_CALL.match(line)) and "m.def" not in line:
        yield "statement: deleted", *found.span(1), f"if (!npu_mutant(@)) {found[1]}"
        return
    found = CPP_CONDITION.match(line) or CPP_RETURN.match(line)
    if (
        not found
        or found[1].count("(") != found[1].count(")")
        or re.search(r"[;\"]|\bauto\b| [*&]?= ", found[1])
    ):
        return
    spot, old = found.span(1), found[1]
    if "return " not in line[: spot[0]]:
        yield "condition: negated", *spot, f"npu_mutant(@) ? !({old}) : ({old})"
    for operator, other in [pair for one in CPP_OPPOSITES for pair in (one, one[::-1])]:
        kind = CPP_KINDS.get(operator, "comparison")
        if kind == "arithmetic" and "return " in line[: spot[0]]:
            continue  # it may join texts
        for place in re.finditer(rf"(?<= ){re.escape(operator)}(?= )", old):
            new = old[: place.start()] + other + old[place.end() :]
            yield f"{kind}: {operator} -> {other}", *spot, f"npu_mutant(@) ? ({new}) : ({old})"
    for place in re.finditer(r"(?<![\w.])\d+(?![\w.'])", old):
        changed = str(int(place[0]) + 1)
        new = old[: place.start()] + changed + old[place.end() :]
        yield f"constant: {place[0]} -> {changed}", *spot, f"npu_mutant(@) ? ({new}) : ({old})"
