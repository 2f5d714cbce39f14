"""Random models of sizes left open: slices, views, joins, masks, branches and loops, as PyTorch code.

A program is a list of steps. Each takes a matrix, and a second one of as many columns, and returns a matrix.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn, ones
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as map_rows
from torch.export import Dim

Step = Callable[[Any, Any], Any]

ELEMENTWISE: dict[str, Step] = {
    "sin": lambda x, y: x.sin(),
    "scaled": lambda x, y: x * 0.5 + 1,
    "plus_rows": lambda x, y: x + x.shape[0],
    "by_columns": lambda x, y: x / x.shape[1],
    "by_a_root": lambda x, y: x / torch.sym_sqrt(x.shape[0] + 1),
    "by_the_larger": lambda x, y: x / torch.sym_max(x.shape[0], y.shape[0]),
    "broadcast": lambda x, y: x + y[:1, :1],
    "softmax": lambda x, y: x.softmax(0),
    "mean_taken_off": lambda x, y: x - x.mean(1, keepdim=True),
    "masked": lambda x, y: torch.where(x > 0, x, x.new_zeros(())),
    "position": lambda x, y: x + torch.arange(x.shape[0]).unsqueeze(1),
    "running_sum": lambda x, y: x.cumsum(0).tanh(),
}
SIZES: dict[str, Step] = {
    "but_the_first": lambda x, y: x[1:],
    "but_the_last": lambda x, y: x[:-1],
    "every_second": lambda x, y: x[::2],
    "first_half": lambda x, y: x[: x.shape[0] // 2 + 1],
    "narrowed": lambda x, y: x.narrow(0, 1, x.shape[0] - 1),
    "twice": lambda x, y: torch.cat([x, x]),
    "with_the_other": lambda x, y: torch.cat(
        [x, y[:, : x.shape[1]].sum(1, keepdim=True).expand(-1, x.shape[1])]
    ),
    "wider": lambda x, y: torch.cat([x, x * 2], dim=1),
    "transposed": lambda x, y: x.t(),
    "turned": lambda x, y: x.reshape(x.shape[1], x.shape[0]),
    "flat_and_back": lambda x, y: x.flatten().view(x.shape[0], -1) * 2,
    "column": lambda x, y: x.reshape(-1, 1),
    "pairs": lambda x, y: torch.cat([x, x], 1).view(-1, 2),
    "gram": lambda x, y: (x @ x.t()).tanh(),
    "repeated": lambda x, y: x.repeat(2, 1),
    "padded": lambda x, y: nn.functional.pad(x, (0, 0, 1, 0)),
    "stacked": lambda x, y: torch.stack([x, -x]).flatten(0, 1),
    "windows": lambda x, y: x.unfold(0, 2, 1).sum(-1),
}
DATA: dict[str, Step] = {
    "sum_of_a_mask": lambda x, y: x + x[x > 0].sum(),
    "count_of_nonzero": lambda x, y: x * (x > 0).nonzero().shape[0],
    "rows_of_a_mask": lambda x, y: x + x[x[:, 0] > 0].sum(0, keepdim=True),
    "selected": lambda x, y: x - x.masked_select(x > 0.5).sum(),
    "element": lambda x, y: x * (x[0, 0] > 0).item(),
    "count": lambda x, y: x + (x > 0).sum().item() / 4,
    "ones_by_content": lambda x, y: x + ones((x > 0).sum().item()).sum(),
}


def _branch(x: Any, y: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda a: a.sin() * a.shape[0], lambda a: a * 0.25 - 1, (x,))


def _branch_of_two(x: Any, y: Any) -> Any:
    return torch.cond(x.sum() > y.sum(), lambda a, b: a + b.sum(), lambda a, b: a * 1, (x, y))


def _loop(x: Any, y: Any) -> Any:
    return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a.tanh() + 0.1), (torch.tensor(0), x * 1))[1]


def _branch_in_a_loop(x: Any, y: Any) -> Any:
    def step(i: Any, a: Any) -> Any:
        return i + 1, torch.cond(a.sum() > 1, lambda b: b * 0.5, lambda b: b + 1, (a,))

    return while_loop(lambda i, a: i < 2, step, (torch.tensor(0), x * 1))[1]


def _scan(x: Any, y: Any) -> Any:
    return scan(lambda carry, row: (carry * 0.5 + row, carry * 1), x[0] * 0, x)[1]


CONTROL: dict[str, Step] = {
    "branch": _branch,
    "branch_of_two": _branch_of_two,
    "loop": _loop,
    "branch_in_a_loop": _branch_in_a_loop,
    "scan": _scan,
    "map": lambda x, y: map_rows(lambda row: row * 2 - row.amax(), x),  # a sum has the order of memory
}
STEPS = {**ELEMENTWISE, **SIZES, **DATA, **CONTROL}

# How often each kind of step is drawn; control flow is slow to export.
names = st.one_of(
    st.sampled_from(sorted(ELEMENTWISE)),
    st.sampled_from(sorted(SIZES)),
    st.sampled_from(sorted(SIZES)),
    st.sampled_from(sorted(DATA)),
    st.sampled_from(sorted(CONTROL)),
)
programs = st.lists(names, min_size=1, max_size=5)
DYNAMIC_SHAPES = {
    "rows": ({0: Dim.AUTO}, {0: Dim.AUTO}),
    "rows_and_columns": ({0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO, 1: Dim.AUTO}),
    "rows_of_one": ({0: Dim.AUTO}, None),
}


class Program(nn.Module):
    def __init__(self, steps: Sequence[str]) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: Any, y: Any) -> Any:
        made = []
        for name in self.steps:
            x = STEPS[name](x, y)
            made.append(x.shape[0])
        return x, made


def inputs(rows: int, other_rows: int, columns: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows + other_rows)
    return torch.randn(rows, columns, generator=generator), torch.randn(
        other_rows, columns, generator=generator
    )
