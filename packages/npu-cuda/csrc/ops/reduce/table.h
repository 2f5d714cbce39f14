// Reductions over any axes: one op a line.
//
//   REDUCE(kind, name, classes, attributes, schema, first, start, step, merge, finish)
//
// A state starts as `start`; `step` takes the element x into the state a; `merge` joins the states a and b
// of two parts; `finish` makes the result of the state a of n elements. `first` is a reduction that is done
// before, over the same elements, and whose result is m; void where there is none. `p` are the attributes.
// Kinds are pinned. No include guard: op.h includes it to define the ops, and again to list them.

REDUCE(4, ReduceSum, kAny | kNoTruth, AllButLast, "RSUM", void, 0, a + x, a + b, a)
REDUCE(200, Sum, kAny | kNoTruth, Axes, "RDSM", void, 0, a + x, a + b, a)
REDUCE(201, Mean, kReal, Axes, "RDMN", void, 0, a + x, a + b, a / n)
REDUCE(202, Amax, kAny | kNotEmpty, Axes, "RDMX", void, -kInfinity, maximum(x, a), maximum(a, b), a)
REDUCE(203, Amin, kAny | kNotEmpty, Axes, "RDMI", void, kInfinity, minimum(x, a), minimum(a, b), a)
REDUCE(204, Prod, kAny | kNoTruth, Axes, "RDPR", void, 1, a * x, a * b, a)
REDUCE(205, Any, kTruth, Axes, "RDAN", void, 0, select(x != 0, 1, a), maximum(a, b), a)
REDUCE(206, All, kTruth, Axes, "RDAL", void, 1, select(x == 0, 0, a), minimum(a, b), a)
REDUCE(207, NormZero, kReal, Axes, "RDN0", void, 0, a + V(x != 0), a + b, a)
REDUCE(208, NormOne, kReal, Axes, "RDN1", void, 0, a + abs(x), a + b, a)
REDUCE(209, NormTwo, kReal, Axes, "RDN2", void, 0, fma(x, x, a), a + b, sqrt(a))
REDUCE(210, NormMax, kReal | kNotEmpty, Axes, "RDNX", void, 0, maximum(abs(x), a), maximum(a, b), a)
REDUCE(211, NormMin, kReal | kNotEmpty, Axes, "RDNM", void, kInfinity, minimum(abs(x), a), minimum(a, b), a)
REDUCE(212, NormPower, kReal, PowerAxes, "RDNP", void, 0, a + pow(abs(x), p.power), a + b,
       pow(a, 1 / p.power))
REDUCE(213, Var, kReal, CorrectionAxes, "RDVR", Mean, 0, fma(x - m, x - m, a), a + b, a / p.divisor(n))
REDUCE(214, Std, kReal, CorrectionAxes, "RDSD", Mean, 0, fma(x - m, x - m, a), a + b, sqrt(a / p.divisor(n)))
REDUCE(215, LogSumExp, kReal, Axes, "RDLS", Amax, 0, a + exp(x - finite(m)), a + b, log(a) + finite(m))
