// Activations with their gradients, losses and optimizers: one op a line, as table_arithmetic.h says. Two
// lines of one kind are the op with and without its last input.

OP(1, EltwiseRelu, kAny, (V x), (y), None, "", select(x < 0, 0, x))
OP(6, ReluBwd, kAny, (V dy, V y), (dx), None, "", select(y <= 0, 0, dy))
OP(100, Sigmoid, kReal, (V x), (y), None, "", sigmoid(x))
OP(101, SigmoidBwd, kReal, (V dy, V y), (dx), None, "", dy * (1 - y) * y)
OP(102, TanhBwd, kReal, (V dy, V y), (dx), None, "", dy * (1 - y * y))
OP(103, Gelu, kReal, (V x), (y), None, "", x * normal_probability(x))
OP(104, GeluBwd, kReal, (V dy, V x), (dx), None, "", gelu_bwd(dy, x))
OP(105, GeluTanh, kReal, (V x), (y), None, "", gelu_tanh(x))
OP(106, GeluTanhBwd, kReal, (V dy, V x), (dx), None, "", gelu_tanh_bwd(dy, x))
OP(107, Silu, kReal, (V x), (y), None, "", x / (1 + exp(-x)))
OP(108, SiluBwd, kReal, (V dy, V x), (dx), None, "", silu_bwd(dy, x))
OP(109, Softplus, kReal, (V x), (y), SoftplusAttrs, "SFPL", softplus(x, p))
OP(110, SoftplusBwd, kReal, (V dy, V x), (dx), SoftplusAttrs, "SFPB", softplus_bwd(dy, x, p))
OP(111, Hardswish, kReal, (V x), (y), None, "", x * hardsigmoid(x))
OP(112, HardswishBwd, kReal, (V dy, V x), (dx), None, "", hardswish_bwd(dy, x))
OP(113, Hardsigmoid, kReal, (V x), (y), None, "", hardsigmoid(x))
OP(114, HardsigmoidBwd, kReal, (V dy, V x), (dx), None, "",
   select(x > -3 && x < 3, dy / 6, 0))
OP(115, HardtanhBwd, kReal, (V dy, V x), (dx), Bounds, "HTHB",
   select(x <= p.low || x >= p.high, 0, dy))
OP(116, LeakyRelu, kReal, (V x), (y), Slope, "LEAK", select(x > 0, x, x * p.slope))
OP(117, LeakyReluBwd, kReal, (V dy, V x), (dx), Slope, "LEKB", select(x > 0, dy, dy * p.slope))
OP(118, Elu, kReal, (V x), (y), EluAttrs, "ELU1", elu(x, p))
OP(119, EluBwd, kReal, (V dy, V x), (dx), EluAttrs, "ELUB", elu_bwd(dy, x, p))

OP(5, MseGrad, kReal, (V pred, V target), (grad), MseScale, "MSEG", p.factor * (pred - target))
OP(120, SquaredError, kReal, (V pred, V target), (y), None, "", square(pred - target))
OP(121, MseBwd, kReal, (V dy, V pred, V target), (dx), MseScale, "MSEB", p.factor * dy * (pred - target))

OP(7, SgdStep, kReal, (V param, V grad), (param), PlainSgd, "SGDS", sgd(param, grad, V(p.lr), p))
OP(7, SgdStepLr, kReal, (V param, V grad, V lr), (param), PlainSgd, "SGDS", sgd(param, grad, lr, p))
OP(122, SgdMomentumStep, kReal, (V param, V grad, V momentum), (param, momentum), Sgd, "SGDM",
   sgd_momentum(param, grad, momentum, V(p.lr), p))
OP(122, SgdMomentumStepLr, kReal, (V param, V grad, V momentum, V lr), (param, momentum), Sgd, "SGDM",
   sgd_momentum(param, grad, momentum, lr, p))
OP(10, AdamStep, kReal, (V param, V grad, V m, V v, V bc1_inv, V bc2_inv), (param, m, v), Adam, "ADAM",
   adam(param, grad, m, v, bc1_inv, bc2_inv, V(p.lr), p))
OP(10, AdamStepLr, kReal, (V param, V grad, V m, V v, V bc1_inv, V bc2_inv, V lr), (param, m, v), Adam, "ADAM",
   adam(param, grad, m, v, bc1_inv, bc2_inv, lr, p))
OP(124, AmsgradStep, kReal, (V param, V grad, V m, V v, V largest, V bc1_inv, V bc2_inv), (param, m, v, largest),
   Adam, "AMSG", amsgrad(param, grad, m, v, largest, bc1_inv, bc2_inv, V(p.lr), p))
OP(124, AmsgradStepLr, kReal, (V param, V grad, V m, V v, V largest, V bc1_inv, V bc2_inv, V lr),
   (param, m, v, largest), Adam, "AMSG", amsgrad(param, grad, m, v, largest, bc1_inv, bc2_inv, lr, p))
OP(11, StepInc, kAny, (V step), (step), None, "", step + 1)
OP(12, BiasCorr, kDouble, (V step), (bc1_inv, bc2_inv), Betas, "BCOR",
   bias_correction(step, p.beta1), bias_correction(step, p.beta2))
OP(125, ClipByNorm, kReal, (V grad, V norm), (grad), ClipAttrs, "CLPN",
   grad * minimum(1 / (norm + p.eps) * p.max_norm, 1))
OP(126, Unscale, kReal, (V grad, V inv_scale), (grad), None, "", select(inv_scale == 1, grad, grad * inv_scale))
OP(127, LossScaleUpdate, kDouble, (V scale, V growth, V found_inf), (scale, growth), LossScale, "LSUP",
   loss_scale_update(scale, growth, found_inf, p))
OP(128, DropoutBwd, kReal, (V dy, V mask), (dx), Scaling, "DRPB", dy * (mask * p.value))
OP(9, GradZero, kAny, (), (y), None, "", 0)
OP(123, Fill, kAny, (), (y), Content, "FILL", p.value)
OP(8, Cast, kCast, (V x), (y), None, "", x)
