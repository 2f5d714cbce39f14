"""The text of a graph that has everything: what is written, read and damaged in many ways."""

FULL_TEXT = """\
graph Everything {
  symbol s0 in [2, 64]
  symbol u0 in [0, inf]
  symbol d in [-inf, inf]
  require mod(s0, 2) == 0
  require 4*s0 != 8
  require 1.5*s0 >= 2.5
  input %x: f32[s0, 2*s0+1]
  input %t: f32[s0, 4]@[1, s0]
  input %sparse: f32[s0, 3]@sparse_coo
  input %n: int(d)
  input %"two words": bool target "flag"
  param %w: f32[3] aliases ["tied"]
  buffer %m: f32[3] target "mean"
  buffer %mask: f32[2] non_persistent = [inf, -0.0]
  state %w.exp_avg: f32[3]
  const %bits: uint4[1] = bytes("03")
  call (%x, [%t, None], %sparse, n=%n, "a b"=%"two words")

  prologue {
    %half: f32[3] = aten.mul.Tensor(self=%w) {other=0.5}
  }
  %k: int(u0) = aten.sym_size.int(self=%x) {dim=1}
  %y: f32[s0, 4] = higher_order.cond(pred=%"two words", operands=(%t))
  region true_fn = graph yes {
    input %t: f32[s0, 4]
    const %c: f32[2] = [1.0, 2.0]

    %loop: f32[s0, 4] = my.loop(carried=%t) {options={"unroll": 2, "dtype": f32}}
    region body = graph body {
      input %t: f32[s0, 4]


      return (%t,)
    }

    return (%loop,)
  }
  region false_fn = graph no {
    input %t: f32[s0, 4]


    return (%t,)
  }
  %max.values: f32[s0], %max.indices: i64[s0] = aten.max.dim(self=%y) {dim=1}
  %i: f32[s0, 4] = aten.index.Tensor(self=%y, indices=?[None, %max.indices])
  %nested: f32[3] = my.op(l=((%k), "s", %n)) {by=complex(1.0, 2.0), device=device("cpu")}
  aten._assert_async.default(self=%n) as "check"

  update %m = %half
  return {"y": %y, "best": (%max.values, 1.5), "bits": %bits}
}
"""
