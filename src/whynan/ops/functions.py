"""Functions of one number, and of a number and a parameter."""

from __future__ import annotations

import math

from whynan.ops.op import between, each, op

SCIPY = {"numpy": "only SciPy has it"}
GAMMA = between("(0, inf)", "numbers other than 0, -1, -2, ...")
SECOND = "the order stands first in the call, the operand second"

FUNCTIONS = (
    # Logarithms.
    op("log", numpy="log", domain="(0, inf)", fails="log_nonpositive", does="compresses tensor"),
    op("log2", numpy="log2", domain="(0, inf)", fails="log_nonpositive", does="compresses tensor"),
    op("log10", numpy="log10", domain="(0, inf)", fails="log_nonpositive", does="compresses tensor"),
    op("log1p", numpy="log1p", domain="(-1, inf)", fails="log_nonpositive", does="compresses tensor"),
    op("xlogy", "xlogy special_xlogy", of="other", domain="(0, inf)", fails="log_nonpositive", lacks=SCIPY),
    op("xlog1py", "special_xlog1py", of="other", domain="(-1, inf)", fails="log_nonpositive", lacks=SCIPY),
    op("entr", "special_entr", domain="[0, inf)", slope=(0,), fails="log_nonpositive", lacks=SCIPY),
    op("logit", "logit special_logit", backward="logit_backward", takes="input eps", domain="(0, 1)",
       fails="log_nonpositive", does="tensor compresses", lacks=SCIPY),
    # Exponentials.
    op("exp", numpy="exp", range="(0, inf)", rounds=(0,), formula=math.exp, does="grows tensor"),
    op("exp2", "exp2 special_exp2", numpy="exp2", range="(0, inf)", rounds=(0,), formula=math.exp2, does="grows"),
    op("expm1", "expm1 special_expm1", numpy="expm1", range="(-1, inf)", does="grows tensor",
       otherwise="torch.tanh(x / 2) * (torch.exp(x) + 1)"),
    op("sinh", numpy="sinh", does="grows",
       log_is="x + torch.log(-torch.expm1(-2 * x)) - 0.6931471805599453"),
    op("cosh", numpy="cosh", range="[1, inf)", does="grows",
       log_is="x.abs() + torch.nn.functional.softplus(-2 * x.abs()) - 0.6931471805599453"),
    op("i0", "i0 special_i0", range="[1, inf)", does="grows",
       log_is="torch.special.i0e(x).log() + x.abs()"),
    op("i1", "special_i1", also="i1", does="grows", log_is="torch.special.i1e(x).log() + x"),
    op("sigmoid", "sigmoid special_expit", backward="sigmoid_backward", also="expit", modules="Sigmoid",
       range="(0, 1)", rounds=(0, 1), formula=lambda x: 1 / (1 + math.exp(-x)), does="faithful tensor"),
    op("logsigmoid", "log_sigmoid_forward log_sigmoid", backward="log_sigmoid_backward",
       modules="LogSigmoid", range="(-inf, 0)"),
    op("softplus", backward="softplus_backward", modules="Softplus", range="(0, inf)", rounds=(0,),
       does="tensor"),
    op("tanh", backward="tanh_backward", numpy="tanh", modules="Tanh", range="(-1, 1)", rounds=(-1, 1),
       formula=math.tanh, does="faithful tensor"),
    op("erf", "erf special_erf", range="(-1, 1)", rounds=(-1, 1), formula=math.erf,
       otherwise="torch.erf(x.double()).to(x.dtype)"),
    op("erfc", "erfc special_erfc", range="(0, 2)", rounds=(0, 2), formula=math.erfc,
       log_is="torch.special.log_ndtr(-1.4142135623730951 * x) + 0.6931471805599453"),
    op("ndtr", "special_ndtr", also="ndtr", range="(0, 1)", rounds=(0, 1),
       log_is="torch.special.log_ndtr(x)"),
    # Roots.
    op("sqrt", numpy="sqrt", domain="[0, inf)", slope=(0,), range="[0, inf)", fails="sqrt_negative",
       does="positive tensor"),
    op("rsqrt", domain="(0, inf)", range="(0, inf)", fails="division_by_zero sqrt_negative", does="tensor",
       lacks={"numpy": "there it is 1 / sqrt"}),
    # Angles.
    op("acos", also="arccos", numpy="arccos acos", domain="[-1, 1]", slope=(-1, 1), fails="invalid_domain",
       does="tensor"),
    op("asin", also="arcsin", numpy="arcsin asin", domain="[-1, 1]", slope=(-1, 1), fails="invalid_domain",
       does="tensor"),
    op("acosh", also="arccosh", numpy="arccosh acosh", domain="[1, inf)", slope=(1,), range="[0, inf)",
       fails="invalid_domain", does="tensor"),
    op("atanh", also="arctanh", numpy="arctanh atanh", domain="(-1, 1)", fails="invalid_domain", does="tensor",
       otherwise="0.5 * (torch.log1p(x) - torch.log1p(-x))"),
    op("sin", numpy="sin", range="[-1, 1]", does="faithful"),
    op("cos", numpy="cos", range="[-1, 1]", does="faithful"),
    op("tan", numpy="tan"),
    op("atan", also="arctan", numpy="arctan atan"),
    op("asinh", also="arcsinh", numpy="arcsinh asinh"),
    # Of probability and counting.
    op("erfinv", "erfinv special_erfinv", domain="(-1, 1)", fails="invalid_domain", does="tensor", lacks=SCIPY),
    op("ndtri", "special_ndtri", domain="(0, 1)", fails="invalid_domain", lacks=SCIPY),
    op("lgamma", "lgamma special_gammaln", also="gammaln", domain=GAMMA, fails="invalid_domain", does="tensor", lacks=SCIPY),
    op("digamma", "digamma special_digamma", also="psi", domain=GAMMA, fails="invalid_domain", does="tensor", lacks=SCIPY),
    op("polygamma", "polygamma special_polygamma", domain=GAMMA, fails="invalid_domain",
       lacks={**SCIPY, "fix": SECOND, "lint": SECOND}),
    op("mvlgamma", "mvlgamma special_multigammaln", also="multigammaln", fails="invalid_domain",
       domain=between("(0, inf)", "large enough numbers"), lacks=SCIPY),
    # What layers put between their sums.
    op("threshold_backward", does="faithful"),  # of relu, too
    op("relu", modules="ReLU ReLU6", range="[0, inf)", does="faithful tensor"),
    op("leaky_relu", backward="leaky_relu_backward"),
    op("elu", backward="elu_backward"),
    op("gelu", backward="gelu_backward"),
    op("silu", backward="silu_backward"),
    op("mish", backward="mish_backward"),
    op("hardswish", backward="hardswish_backward"),
    op("hardsigmoid", backward="hardsigmoid_backward", modules="Hardsigmoid", range="[0, 1]"),
    *each("selu celu"),
)  # fmt: skip
