"""Where values come from and where they go: constructors, copies, views, choices, placements."""

from __future__ import annotations

from whynan.ops.op import each, op

SHAPES = (
    # Memory and constants.
    op("empty", "empty empty_like empty_strided empty_permuted new_empty new_empty_strided",
       numpy="empty empty_like", reads="nothing", does="allocates tensor"),
    op("zeros", "zeros zeros_like new_zeros", numpy="zeros zeros_like", reads="nothing",
       does="constant faithful tensor"),
    op("ones", "ones ones_like new_ones", numpy="ones ones_like", reads="nothing", does="constant faithful"),
    op("full", "full full_like new_full scalar_tensor", numpy="full full_like", takes="size fill_value",
       reads="nothing", does="constant fills"),
    op("arange", numpy="arange", reads="nothing", does="constant whole"),
    op("linspace", numpy="linspace", reads="nothing", does="constant"),
    op("eye", numpy="eye identity", reads="nothing", does="constant"),
    op("one_hot", reads="unknown", does="flat whole"),
    # Random numbers.
    op("rand", "rand rand_like uniform random", also="random_sample", reads="nothing", range="[0, 1)",
       does="draws random overwrites"),
    op("randn", "randn randn_like", also="standard_normal", reads="nothing", does="draws random"),
    op("normal", does="draws random overwrites"),
    op("exponential", reads="nothing", range="(0, inf)", does="draws random overwrites"),
    op("bernoulli", range="[0, 1]", does="draws random overwrites"),
    op("multinomial", reads="unknown", domain="[0, inf)", fails="invalid_domain", does="random", lacks={
       "lint": "whether a probability is negative, only its values tell",
       "fix": "the distribution is another one with any bound", "numpy": "it has generators instead"}),
    *each("randint randint_like randperm", "nothing", "random overwrites"),
    *each("log_normal cauchy geometric", "nothing", "draws random overwrites"),
    *each("poisson binomial", does="draws random"),
    # What is written in place.
    op("fill", does="fills overwrites"),
    op("zero", does="overwrites faithful"),
    op("copy", does="copies overwrites"),
    op("set", reads="unknown", does="enters overwrites"),
    op("masked_fill", takes="input mask value", does="fills tensor"),
    *each("index_fill fill_diagonal value_selecting_reduction_backward", "unknown", "fills"),
    # The same values, copied, cast or come in.
    op("clone", does="copies keeps faithful"),
    op("contiguous", does="copies keeps tensor"),
    op("detach", reads="view", does="keeps tensor"),
    op("cast", "_to_copy", also="to type type_as", numpy="astype", formula=float, does="casts copies keeps"),
    *(op(name, "", does="casts keeps tensor") for name in ("half", "bfloat16", "float", "double", "cuda")),
    op("cpu", "", does="casts keeps"),
    op("tensor", "lift_fresh lift lift_fresh_copy", numpy="array", does="enters copies keeps"),
    op("as_tensor", "", also="from_numpy", numpy="asarray", does="keeps"),
    op("numpy", "", does="keeps"),
    *each("from_file", "unknown", "enters"),
    # The same storage, or the same values in another shape.
    op("reshape", numpy="reshape", reads="view", does="keeps"),
    *each("view flatten unflatten view_as reshape_as movedim narrow", "view", "keeps"),
    op("swapaxes", "swapaxes swapdims", numpy="swapaxes", reads="view", does="keeps"),
    op("ravel", numpy="ravel", reads="view", does="keeps"),
    op("diagonal", backward="diagonal_backward", numpy="diagonal", reads="view", reads_back="move", does="keeps"),
    op("slice", backward="slice_backward", reads="view", reads_back="move", does="picks faithful"),
    op("select", backward="select_backward", reads="view", reads_back="move", does="picks keeps faithful"),
    *each("t transpose squeeze", "view", "keeps turns"),
    *each("permute unsqueeze", "view", "keeps turns tensor"),
    *each("expand expand_as", "view", "keeps tensor"),
    *each("split unbind tensor_split", "view", "keeps splits"),
    op("chunk", reads="view", does="keeps splits tensor"),
    op("repeat", numpy="tile", reads="move", does="keeps faithful"),
    *each("roll flip", "move", "keeps faithful"),
    *each("tril triu", "move", "faithful"),
    *each("_unsafe_view _reshape_copy view_copy expand_copy permute_copy unfold_copy diagonal_copy "
          "pixel_shuffle pixel_unshuffle diag_embed", "move"),
    op("cat", "cat concat concatenate", numpy="concatenate", reads="join", does="faithful"),
    op("stack", numpy="stack", reads="join", does="faithful"),
    # Chosen by an index.
    op("index", reads="move", does="picks keeps"),
    op("index_select", reads="lookup", does="picks keeps faithful tensor"),
    op("gather", reads="lookup", does="picks keeps faithful tensor"),
    op("take", numpy="take", reads="move", does="picks keeps"),
    op("take_along_dim", numpy="take_along_axis", reads="unknown", does="picks keeps"),
    op("masked_select", reads="move", does="picks keeps"),
    op("embedding", backward="embedding_dense_backward", reads="lookup", reads_back="put", does="faithful"),
    op("embedding_bag", "_embedding_bag _embedding_bag_forward_only embedding_bag",
       backward="_embedding_bag_backward _embedding_bag_dense_backward", reads="bag", reads_back="unknown"),
    # Put at a place.
    *each("index_add index_copy index_reduce scatter scatter_add scatter_reduce", "put"),
    op("index_put", "index_put _index_put_impl", reads="put"),
    op("bincount", numpy="bincount", reads="put", does="counts whole"),
)  # fmt: skip
