"""Which library an imported name belongs to, as far as arrays are concerned."""

from __future__ import annotations

OTHER = "other"
TABLES = "tables"
# By the first part of the name under which they are imported.
FAMILIES = {
    "torch": "torch", "numpy": "numpy", "scipy": "numpy", "math": "math",
    **dict.fromkeys((
        "aesara", "autograd", "brax", "casadi", "chainer", "chex", "cunumeric", "cupy", "cupynumeric",
        "cupyx", "cvxpy", "distrax", "equinox", "flax", "haiku", "ivy", "jax", "jaxlib", "jittor",
        "keras", "keras_core", "mindspore", "mlx", "mlx_lm", "mpmath", "mxnet", "numpyro", "objax",
        "oneflow", "optax", "paddle", "paddlenlp", "polars", "ppdet", "pytensor", "sympy",
        "tensorflow", "tensorflow_addons", "tensorflow_probability", "tf_keras", "theano", "tinygrad",
        "trax", "triton",
    ), OTHER),
    **dict.fromkeys(("cudf", "dask", "pandas", "pyspark", "xarray"), TABLES),
}  # fmt: skip


def family(qualified: str) -> str:
    """torch, numpy, math, tables, another array library, or '' for what has no arrays.

    >>> family("torch.nn.functional.relu"), family("jax.numpy.log"), family("json.loads")
    ('torch', 'other', '')
    """
    return FAMILIES.get(qualified.split(".", 1)[0], "")
