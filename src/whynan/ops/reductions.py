"""What is computed along dimensions: sums, extremes, spreads, running sums, softmaxes."""

from __future__ import annotations

from whynan.ops.op import each, op

DIM = "input dim keepdim"
SPREAD = "input dim correction keepdim"
NORM = "input p dim keepdim"

REDUCTIONS = (
    op("sum", numpy="sum", takes=DIM, reads="reduction", fails="inf_minus_inf", does="positive"),
    op("nansum", numpy="nansum", takes=DIM, reads="reduction", does="positive spares"),
    op("mean", numpy="mean", takes=DIM, reads="reduction", fails="empty_reduction inf_minus_inf", does="positive"),
    op("average", "", numpy="average", reads="reduction"),
    op("nanmean", numpy="nanmean", takes=DIM, reads="reduction", fails="empty_reduction", does="positive spares"),
    op("prod", numpy="prod", takes=DIM, reads="reduction", rounds=(0,), fails="zero_times_inf", does="multiplies positive"),
    op("std", "std std_mean", numpy="std", takes=SPREAD, reads="reduction", range="[0, inf)",
       fails="empty_reduction inf_minus_inf", does="spread"),
    op("var", "var var_mean", numpy="var", takes=SPREAD, reads="reduction", range="[0, inf)",
       fails="empty_reduction inf_minus_inf", does="spread"),
    op("norm", "linalg_vector_norm norm linalg_norm linalg_matrix_norm", also="vector_norm matrix_norm",
       numpy="norm", takes=NORM, reads="reduction", range="[0, inf)", fails="inf_minus_inf",
       does="positive squares tensor"),
    op("logsumexp", "logsumexp special_logsumexp", takes=DIM, reads="reduction",
       fails="all_masked_softmax inf_minus_inf", does="tensor"),
    op("amax", numpy="amax", takes=DIM, reads="reduction", does="positive largest selects tensor"),
    op("amin", numpy="amin", takes=DIM, reads="reduction", does="positive smallest selects tensor"),
    op("aminmax", reads="reduction", does="largest smallest selects"),
    op("max", numpy="max", takes=DIM, reads="choice", does="positive largest selects"),
    op("min", numpy="min", takes=DIM, reads="choice", does="positive smallest selects"),
    op("median", numpy="median", reads="choice", fails="empty_reduction", does="positive selects"),
    op("nanmedian", numpy="nanmedian", reads="choice", fails="empty_reduction", does="selects spares"),
    *each("sort topk kthvalue mode cummax cummin", "choice", "selects"),
    *each("any all", "reduction", "compares"),
    *each("argmax argmin", "reduction", "flat whole"),
    op("count_nonzero", numpy="count_nonzero", reads="reduction", does="counts whole"),
    op("histc", also="histogram", reads="unknown", does="counts"),
    op("quantile", numpy="quantile percentile", reads="unknown"),
    *(op(f"nan{name}", "", numpy=f"nan{name}", reads="reduction", does="spares") for name in ("max", "min", "std", "var")),
    op("nanquantile", numpy="nanquantile nanpercentile", reads="unknown", does="spares"),
    # The same shape in and out.
    op("cumsum", numpy="cumsum", reads="prefix", fails="inf_minus_inf", does="positive"),
    op("cumprod", numpy="cumprod", reads="prefix", rounds=(0,), fails="zero_times_inf", does="multiplies positive"),
    op("logcumsumexp", "logcumsumexp _logcumsumexp", reads="prefix"),
    op("softmax", "_softmax _safe_softmax _masked_softmax softmax special_softmax",
       backward="_softmax_backward_data _masked_softmax_backward", modules="Softmax Softmax2d",
       takes="input dim", reads="row", range="(0, 1)", rounds=(0, 1),
       fails="all_masked_softmax inf_minus_inf", does="faithful tensor"),
    op("log_softmax", "_log_softmax log_softmax special_log_softmax", backward="_log_softmax_backward_data",
       modules="LogSoftmax", takes="input dim", reads="row", range="(-inf, 0]",
       fails="log_nonpositive all_masked_softmax inf_minus_inf", does="tensor"),
    op("diff", numpy="diff", reads="unknown", fails="inf_minus_inf"),
    op("cosine_similarity", modules="CosineSimilarity", takes="input other dim", reads="unknown",
       range="[-1, 1]"),
    op("normalize", "", also="normalise", takes="input p dim", reads="unknown", range="[-1, 1]"),
    op("cdist", "_cdist_forward cdist _euclidean_dist", backward="_cdist_backward", reads="unknown",
       range="[0, inf)"),
)  # fmt: skip
