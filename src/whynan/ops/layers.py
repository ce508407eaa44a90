"""What layers, losses and optimizers compute in one piece, by the kernels of every back end."""

from __future__ import annotations

from whynan.ops.op import Op, each, op

TERMS = "input target"
CONVOLVED = "windows, without oneDNN, without cuDNN"


def _attention() -> tuple[Op, ...]:
    """torch picks a kernel by device, type and mask; their arguments are alike, their layouts not."""
    by_heads = "flash_attention_for_cpu flash_attention efficient_attention cudnn_attention fused_attention_overrideable"
    forward = [f"_scaled_dot_product_{kernel}" for kernel in by_heads.split()]
    math = "_scaled_dot_product_attention_math _scaled_dot_product_attention_math_for_mps scaled_dot_product_attention"
    fails, does = "all_masked_softmax", "batchwise"
    return (
        op("attention", " ".join([*forward, math]), backward=" ".join(f"{k}_backward" for k in forward),
           reads="heads", fails=fails, does=does, others="math"),
        # Their heads stand after the sequence, or the sequences one after the other.
        op("packed_attention", "_flash_attention_forward _efficient_attention_forward "
           "_flash_attention_forward_no_dropout_inplace", reads="unknown", fails=fails,
           backward="_flash_attention_backward _efficient_attention_backward"),
        op("cudnn_attention", "_cudnn_attention_forward", backward="_cudnn_attention_backward", reads="heads",
           fails=fails, does=does),
        op("multi_head_attention", "_native_multi_head_attention _transformer_encoder_layer_fwd "
           "_triton_multi_head_attention _triton_scaled_dot_attention", reads="sample", fails=fails, does=does),
    )  # fmt: skip


def _backward(kernels: str) -> str:
    return " ".join(f"{kernel}_backward" for kernel in kernels.split())


CONVOLUTION = (
    "convolution convolution_overrideable _convolution conv1d conv2d conv3d cudnn_convolution "
    "cudnn_convolution_relu cudnn_convolution_add_relu miopen_convolution miopen_depthwise_convolution mkldnn_convolution _mps_convolution _conv_depthwise2d "
    "conv_depthwise3d _slow_conv2d_forward slow_conv3d_forward slow_conv_dilated2d slow_conv_dilated3d"
)
TRANSPOSED = (
    "conv_transpose1d conv_transpose2d conv_transpose3d cudnn_convolution_transpose "
    "miopen_convolution_transpose _mps_convolution_transpose slow_conv_transpose2d slow_conv_transpose3d"
)
BATCH_NORM = (
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training "
    "_batch_norm_with_update _batch_norm_no_update cudnn_batch_norm miopen_batch_norm batch_norm"
)
MAX_POOL = (
    "max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d "
    "fractional_max_pool2d fractional_max_pool3d max_pool2d mkldnn_max_pool2d mkldnn_max_pool3d"
)
AVG_POOL = (
    "avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d mkldnn_adaptive_avg_pool2d"
)
UPSAMPLED = (
    "upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d _upsample_bilinear2d_aa "
    "_upsample_bicubic2d_aa"
)
SAMPLED = "grid_sampler_2d grid_sampler_3d _grid_sampler_2d_cpu_fallback cudnn_grid_sampler"
PADS = "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d"
REPEATED = (
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d _upsample_nearest_exact3d"
)

LAYERS = (
    *_attention(),
    op("convolution", CONVOLUTION, backward="convolution_backward convolution_backward_overrideable "
       "mps_convolution_backward _slow_conv2d_backward", reads="window", reads_back="window", fails="zero_times_inf inf_minus_inf",
       does="batchwise", others=CONVOLVED),
    op("transposed_convolution", TRANSPOSED, reads="sample", does="batchwise", others="without oneDNN, without cuDNN"),
    op("max_pool", MAX_POOL, backward=_backward(MAX_POOL), reads="unknown", does="batchwise faithful"),
    *each("max_unpool2d max_unpool3d", "unknown", "batchwise faithful"),
    op("avg_pool", AVG_POOL, backward=_backward(AVG_POOL), reads="unknown", does="batchwise"),
    op("upsample", UPSAMPLED, backward=_backward(UPSAMPLED), reads="unknown", does="batchwise"),
    op("upsample_nearest", REPEATED, backward=_backward(REPEATED), reads="move", reads_back="unknown",
       does="batchwise"),
    op("grid_sample", SAMPLED, backward=_backward(SAMPLED), reads="unknown", does="batchwise"),
    op("pad", f"{PADS} pad", backward=_backward(PADS), reads="move", reads_back="unknown", does="batchwise"),
    op("constant_pad", "constant_pad_nd", reads="move", does="batchwise fills"),
    op("im2col", reads="unknown", does="batchwise"),
    op("fold", "col2im", reads="unknown", does="batchwise"),
    op("glu", backward="glu_backward", reads="unknown", does="batchwise"),
    # Normalisation.
    op("layer_norm", "native_layer_norm layer_norm", backward="native_layer_norm_backward", reads="features",
       fails="inf_minus_inf", does="batchwise normalises"),
    op("rms_norm", "_fused_rms_norm rms_norm", backward="_fused_rms_norm_backward", reads="features",
       does="batchwise normalises"),
    op("group_norm", "native_group_norm group_norm", backward="native_group_norm_backward", reads="sample",
       reads_back="unknown", does="batchwise normalises"),
    op("batch_norm", BATCH_NORM, backward="native_batch_norm_backward cudnn_batch_norm_backward "
       "miopen_batch_norm_backward batch_norm_backward", reads="channel", reads_back="unknown", others="without cuDNN",
       does="normalises", of="running_var", fails="sqrt_negative"),
    op("weight_norm", "_weight_norm_interface _weight_norm", reads="directions", reads_back="unknown",
       backward="_weight_norm_interface_backward", fails="division_by_zero"),
    op("dropout", "native_dropout dropout _fused_dropout", backward="native_dropout_backward", does="random"),
    op("lstm", reads="unknown", others="without oneDNN, without cuDNN"),
    # Losses: one for each element, unless they are added up.
    op("mse_loss", backward="mse_loss_backward", modules="MSELoss", fails="empty_reduction inf_minus_inf", does="batchwise differs"),
    op("l1_loss", fails="empty_reduction", does="batchwise differs"),
    op("smooth_l1_loss", backward="smooth_l1_loss_backward", fails="empty_reduction", does="batchwise differs"),
    op("huber_loss", backward="huber_loss_backward", fails="empty_reduction", does="batchwise differs"),
    op("binary_cross_entropy", backward="binary_cross_entropy_backward", modules="BCELoss", takes=TERMS,
       fails="empty_reduction", does="batchwise"),
    op("binary_cross_entropy_with_logits", modules="BCEWithLogitsLoss", takes=TERMS, reads="unknown",
       does="batchwise"),
    op("cross_entropy", "cross_entropy_loss", modules="CrossEntropyLoss", takes=TERMS, reads="unknown",
       fails="empty_reduction", does="batchwise"),
    op("nll_loss", "nll_loss_forward nll_loss2d_forward nll_loss nll_loss2d nll_loss_nd", modules="NLLLoss",
       backward="nll_loss_backward nll_loss2d_backward", takes=TERMS, reads="unknown",
       fails="empty_reduction", does="batchwise"),
    op("kl_div", modules="KLDivLoss", takes="input target size_average reduce reduction log_target",
       reads="unknown"),
    op("ctc_loss", "_ctc_loss _cudnn_ctc_loss miopen_ctc_loss ctc_loss", backward="_ctc_loss_backward",
       reads="unknown", fails="log_nonpositive"),
    op("margin_loss", "multi_margin_loss multilabel_margin_loss_forward multilabel_margin_loss",
       backward="multi_margin_loss_backward multilabel_margin_loss_backward", reads="unknown", does="batchwise"),
    op("soft_margin_loss", backward="soft_margin_loss_backward", does="batchwise"),
    # Updates of many tensors at once.
    op("adam", "_fused_adam _fused_adamw", reads="lists", fails="division_by_zero", does="squares",
       others="one by one"),
    op("adagrad", "_fused_adagrad", reads="lists", fails="division_by_zero", others="one by one"),
    op("sgd", "_fused_sgd", reads="lists", others="one by one"),
)  # fmt: skip
