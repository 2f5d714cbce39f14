"""The coverage page: which models run, how exactly, and what keeps the others from it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.models.case import SIZES, Case
from tests.models.verdicts import DYNAMIC, STATIC
from tests.support.coverage_runs.outcomes import Outcome
from tests.support.coverage_runs.workers import OpResult, Result

_PASS, _FAIL = Outcome.PASS.value, Outcome.FAIL.value
_NOT_EXPORTED = (Outcome.EAGER_REFUSES.value, Outcome.EXPORT_REFUSES.value)


_INTRODUCTION = """\
<!-- written by nox -s models -->
# Model coverage

Architectures of `transformers` with tiny random configurations, and families of `timm` and `torchvision` by their
smallest member. Each is captured without weights and with arguments without content, saved, loaded, run with random
weights, and compared with eager PyTorch: results, and what it changes in its arguments and buffers. The dynamic graph
is one graph that is run, and compared, with two sizes.
Run it yourself: `nox -s models`.
"""  # noqa: E501
_PASSES = """
A model passes where structure, dtypes and shapes are eager's and every bit is too, or else every value is within the
tolerance that `verify_ir` has for the dtype (f32: 1e-5 + 1.3e-6 × |expected|); what differs is printed as the largest
absolute difference. Eager runs with weights that need no gradients, because `torch.matmul` rounds differently with them.
"""  # noqa: E501
_OWN_PROGRAM = (
    "Where `torch.export`'s own program gives the graph's bits, it is eager that takes another path, such as "
    "a fused kernel."
)
_COPIED = "Built with weights and copied to `meta`, because its code reads what a tensor holds:"


@dataclass(frozen=True, slots=True)
class _Row:
    case: Case
    static: Result
    dynamic: Result | None

    @property
    def entries(self) -> list[Result]:
        return [entry for entry in (self.static, self.dynamic) if entry is not None]


def format_report(versions: Mapping[str, str], cases: Sequence[Case], results: Sequence[OpResult]) -> str:
    by_name = {result.op: {entry["call"]: entry for entry in result.results} for result in results}
    rows = [
        _Row(case, by_name[case.name][STATIC], by_name[case.name].get(DYNAMIC))
        for case in cases
        if STATIC in by_name.get(case.name, {})
    ]
    return "\n".join([*_head(versions, rows), *_notes(rows), *_tables(rows)]) + "\n"


def _head(versions: Mapping[str, str], rows: Sequence[_Row]) -> Iterator[str]:
    libraries = ", ".join(f"{name} {version.partition('+')[0]}" for name, version in versions.items())
    sizes = "; ".join(f"{name} {first} and {other}" for name, (first, other) in SIZES.items())
    yield _INTRODUCTION
    yield f"- {libraries}; on the CPU, one thread"
    for library in dict.fromkeys(row.case.library for row in rows):
        of_library = [row for row in rows if row.case.library == library]
        yield f"- **{library}**: {_count(of_library)}"
    yield f"- {_times([row.static for row in rows], STATIC)}"
    yield f"- {_times([row.dynamic for row in rows if row.dynamic], DYNAMIC)}"
    yield f"{_PASSES}The sizes are, unless the model asks for others: {sizes}.\n"


def _count(rows: Sequence[_Row]) -> str:
    able = [row for row in rows if row.static["outcome"] not in _NOT_EXPORTED]
    static = _passes(row.static for row in rows)
    dynamic = _passes(entry for row in rows for entry in row.entries if entry["call"] == DYNAMIC)
    whole = [row for row in dynamic if row["sizes"] and not row["refused"]]
    failed = sum(entry["outcome"] == _FAIL for row in rows for entry in row.entries)
    exact = sum(entry["same_bits"] for entry in (*static, *dynamic))
    return (
        f"{len(rows)} models; {len(static)} of the {len(able)} that `torch.export` exports pass with fixed "
        f"sizes, {len(dynamic)} with dynamic ones ({len(whole)} with all that were tried), {failed} fail; "
        f"{exact} of these {len(static) + len(dynamic)} graphs are equal to eager to the bit"
    )


def _passes(entries: Iterable[Result]) -> list[Result]:
    return [entry for entry in entries if entry["outcome"] == _PASS]


def _times(entries: Sequence[Result], form: str) -> str:
    made = _passes(entries)
    export, conversion = (sum(entry[key] for entry in made) for key in ("export_s", "conversion_s"))
    shares = sorted(entry["conversion_s"] / entry["export_s"] for entry in made if entry["export_s"])
    median = shares[len(shares) // 2] if shares else 0.0
    within = sum(share <= 0.1 for share in shares)
    return (
        f"{form} graphs: {export:.0f} s in `torch.export`, {conversion:.0f} s in conversion; conversion is "
        f"{median:.0%} of export in the median, and at most 10 % for {within} of {len(shares)}"
    )


def _notes(rows: Sequence[_Row]) -> Iterator[str]:
    entries = [(row.case.name, entry) for row in rows for entry in row.entries]
    passes = [(name, entry) for name, entry in entries if entry["outcome"] == _PASS]
    refused = [
        f"- `{name}`, {entry['call']}: {entry['outcome']}: {_code(entry['reason'])}"
        for name, entry in entries
        if entry["outcome"] != _PASS
    ]
    fixed = [
        f"- `{name}`, {sizes}: {_code(reason)}"
        for name, entry in passes
        for sizes, reason in entry["refused"].items()
    ]
    inexact = [
        f"- `{name}`, {entry['call']}: {entry['max_abs']:.1e} absolute, "
        f"{entry['max_rel']:.1e} relative; "
        + ("as torch.export's own program" if entry["as_program"] else "torch.export's own program differs")
        for name, entry in passes
        if not entry["same_bits"]
    ]
    copied = [
        f"- `{row.case.name}`: {_code(row.static['copied'])}" for row in rows if row.static.get("copied")
    ]
    yield from _section("Refused, and why", refused)
    yield from _section("Sizes that torch.export keeps fixed", fixed)
    yield from _section("Not equal to the bit", inexact, _OWN_PROGRAM)
    yield from _section("Not built on meta", copied, _COPIED)


def _section(title: str, lines: Sequence[str], *introduction: str) -> Iterator[str]:
    for paragraph in (f"## {title}", *introduction):
        yield from (paragraph, "")
    yield from (*(lines or ["None."]), "")


def _tables(rows: Sequence[_Row]) -> Iterator[str]:
    for library in dict.fromkeys(row.case.library for row in rows):
        yield f"## {library}"
        yield ""
        yield (
            "Nodes, seconds in `torch.export` and conversion as a share of them: of the static "
            "graph, then of the dynamic one."
        )
        yield ""
        yield "| model | kind | parameters | nodes | static | dynamic | varying | export s | conversion |"
        yield "|---|---|---:|---:|---|---|---|---:|---:|"
        yield from (_line(row) for row in rows if row.case.library == library)
        yield ""


def _line(row: _Row) -> str:
    made = [entry for entry in row.entries if entry.get("nodes")]
    cells = [
        f"`{row.case.name}`",
        row.case.kind,
        f"{row.static.get('parameters', 0):,}",
        " / ".join(str(entry["nodes"]) for entry in made),
        _verdict(row.static),
        _verdict(row.dynamic),
        ", ".join(row.dynamic["sizes"]) if row.dynamic and row.dynamic.get("sizes") else "",
        " / ".join(f"{entry['export_s']:.2f}" for entry in made),
        " / ".join(f"{entry['conversion_s'] / entry['export_s']:.0%}" for entry in made),
    ]
    return f"| {' | '.join(cells)} |"


def _verdict(entry: Result | None) -> str:
    if entry is None:
        return ""
    if entry["outcome"] != _PASS:
        return str(entry["outcome"])
    return "equal" if entry["same_bits"] else f"within {entry['max_abs']:.1e}"


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    return f"{fence}{' '.join(text.split())}{fence}"
