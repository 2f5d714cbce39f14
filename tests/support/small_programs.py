"""Small programs to run, and the nodes that were run."""

import torch

from npu_ir import Graph, TensorType, parse_ir

F32 = TensorType((2,), torch.float32)
CPU = torch.device("cpu")


def tensor(*items: float) -> torch.Tensor:
    return torch.tensor(items, dtype=torch.float32)


def program(text: str) -> Graph:
    return parse_ir(f"graph g {{\n{text}\n}}")


ADD = """
  input %x: f32[2]
  param %w: f32[2] aliases ["v"]
  buffer %s: f32[2]
  buffer %m: f32[2] non_persistent
  const %c: f32[2] = [10.0, 20.0]
  %a: f32[2] = aten.add.Tensor(%x, %w)
  %b: f32[2] = aten.add.Tensor(%a, %s)
  %d: f32[2] = aten.add.Tensor(%b, %m)
  %e: f32[2] = aten.add.Tensor(%d, %c)
  update %s = %a
  update %x = %b
  return (%e, {"a": %a, "n": 3})
"""
WEIGHTS = {"w": tensor(1, 1), "s": tensor(2, 2)}
CONSTANTS = {"m": tensor(3, 3)}

CONDITION = """\
graph G {
  param %choose: bool[]
  param %w: f32[2]

  prologue {
    %cond: f32[2] = higher_order.cond(pred=%choose, operands=(%w))
    region true_fn = graph yes {
      input %a: f32[2]

      %sin: f32[2] = aten.sin.default(self=%a)

      return (%sin,)
    }
    region false_fn = graph no {
      input %a: f32[2]


      return (%a,)
    }
  }

  return %cond
}
"""
