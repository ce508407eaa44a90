"""Sums, products, quotients, powers; bounds and comparisons."""

from __future__ import annotations

from whynan.ops.op import BUT_ZERO, Domain, each, op

WHOLE = "it is mostly of whole numbers, which have no gradient"
UPDATE = "a line of an optimizer's update, which nobody types"
BASE = Domain(0.0, said="numbers from 0 up, for a fractional exponent")

ARITHMETIC = (
    op("add", takes="input other", numpy="add", python="Add add", fails="inf_minus_inf", does="positive"),
    op("sub", "sub rsub", takes="input other", also="subtract", numpy="subtract", python="Sub sub", fails="inf_minus_inf"),
    op("mul", takes="input other", also="multiply", numpy="multiply", python="Mult mul", fails="zero_times_inf", rounds=(0,), does="multiplies positive"),
    op("div", "div true_divide divide", takes="input other", numpy="divide true_divide", python="Div truediv", domain=BUT_ZERO,
       of="other", fails="division_by_zero inf_over_inf", does="positive"),
    op("floor_divide", numpy="floor_divide", python="FloorDiv floordiv", domain=BUT_ZERO, of="other",
       fails="division_by_zero inf_over_inf", does="flat", lacks={"lint": WHOLE}),
    op("remainder", numpy="remainder mod", python="Mod mod", domain=BUT_ZERO, of="other",
       fails="division_by_zero inf_over_inf", lacks={"lint": WHOLE}),
    op("fmod", numpy="fmod", domain=BUT_ZERO, of="other", fails="division_by_zero inf_over_inf",
       lacks={"lint": WHOLE}),
    op("reciprocal", numpy="reciprocal", domain=BUT_ZERO, fails="division_by_zero", does="tensor"),
    op("pow", "pow float_power", also="power", numpy="power float_power", python="Pow pow",
       takes="input exponent", domain=BASE, slope=(0,), rounds=(0,),
       fails="division_by_zero invalid_domain", does="positive squares tensor"),
    op("square", numpy="square", range="[0, inf)", rounds=(0,), does="positive squares tensor"),
    op("neg", also="negative", numpy="negative", python="USub neg", does="faithful tensor"),
    op("abs", also="absolute", numpy="absolute abs fabs", python="Abs abs", range="[0, inf)", does="positive"),
    op("addcmul", fails="zero_times_inf inf_minus_inf", does="squares"),
    op("addcdiv", domain=BUT_ZERO, of="tensor2", fails="division_by_zero",
       lacks={"lint": UPDATE, "numpy": UPDATE}),
    op("lerp", fails="inf_minus_inf"),
    op("atan2", also="arctan2", numpy="arctan2"),
    op("logaddexp", numpy="logaddexp", fails="inf_minus_inf"),
    *each("hypot copysign sign frac complex polar"),
    *each("floor ceil round trunc", does="flat"),
    # Bounds and choices.
    op("maximum", "maximum fmax", takes="input other", numpy="maximum fmax", does="floor selects faithful"),
    op("minimum", "minimum fmin", takes="input other", numpy="minimum fmin", does="ceiling selects faithful"),
    op("clamp", "clamp clip", numpy="clip", takes="input min max", does="floor ceiling"),
    op("clamp_min", takes="input min", does="floor tensor"),
    op("clamp_max", takes="input max", does="ceiling tensor"),
    op("hardtanh", backward="hardtanh_backward", modules="Hardtanh", does="floor ceiling"),
    op("where", reads="where", numpy="where", takes="condition input other"),
    op("nan_to_num", numpy="nan_to_num", does="spares"),
    # Comparisons.
    op("eq", also="equal", numpy="equal", python="Eq eq", range="[0, 1]", does="compares"),
    op("ne", also="not_equal", numpy="not_equal", python="NotEq ne", range="[0, 1]", does="compares"),
    op("gt", also="greater", numpy="greater", python="Gt gt", range="[0, 1]", does="compares"),
    op("lt", also="less", numpy="less", python="Lt lt", range="[0, 1]", does="compares"),
    op("ge", also="greater_equal", numpy="greater_equal", python="GtE ge", range="[0, 1]", does="compares"),
    op("le", also="less_equal", numpy="less_equal", python="LtE le", range="[0, 1]", does="compares"),
    *each("logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor "
          "isin isclose", does="compares"),
    *each("isnan isfinite isinf isposinf isneginf", does="compares asks"),
)  # fmt: skip
