"""Products of matrices, what is asked of one matrix, and transforms."""

from __future__ import annotations

from whynan.ops.op import Domain, op

PRODUCT = "zero_times_inf inf_minus_inf"
MULTIPLIED = "products, without oneDNN"
INVERTIBLE = Domain(said="invertible matrices")
DEFINITE = Domain(said="positive definite matrices")
ANY = Domain(said="matrices of finite numbers")
DECOMPOSES = {"fix": "it fails by its own algorithm, of which the user has no say"}
ONLY_SCIPY = {"numpy": "only SciPy has it"}

MATRICES = (
    op("matmul", "mm bmm mv matmul linalg_matmul", takes="input other", numpy="matmul", python="MatMult matmul", reads="product",
       fails=PRODUCT, does="multiplies tensor", others=MULTIPLIED),
    op("dot", "dot vdot inner linalg_vecdot", takes="input other", also="vecdot", numpy="dot vdot inner", reads="product",
       fails=PRODUCT, others=MULTIPLIED),
    op("addmm", "addmm baddbmm addmv addbmm", reads="product", fails=PRODUCT, others=MULTIPLIED),
    op("linear", backward="linear_backward", reads="product", fails=PRODUCT, others=MULTIPLIED),
    op("einsum", numpy="einsum", reads="unknown"),
    op("outer", "outer ger", numpy="outer", reads="unknown"),
    op("cross", "linalg_cross cross", numpy="cross", reads="cross"),
    # What fails for some matrices.
    op("inv", "linalg_inv_ex linalg_inv inverse", also="inv_ex", numpy="inv", reads="matrix",
       domain=INVERTIBLE, fails="singular_matrix"),
    op("solve", "_linalg_solve_ex linalg_solve_ex linalg_solve", also="solve_ex", numpy="solve", reads="matrix",
       domain=INVERTIBLE, fails="singular_matrix"),
    op("factored", "cholesky_solve cholesky_inverse linalg_lu_solve lu_solve linalg_solve_triangular "
       "triangular_solve", reads="matrix", domain=INVERTIBLE, fails="singular_matrix",
       lacks={"fix": "what it gets is a factor, not the matrix", **ONLY_SCIPY}),
    op("cholesky", "linalg_cholesky_ex linalg_cholesky cholesky", also="cholesky_ex", numpy="cholesky",
       reads="matrix", domain=DEFINITE, fails="singular_matrix"),
    op("det", "_linalg_det linalg_det det", numpy="det", reads="matrix", rounds=(0,), fails="singular_matrix",
       does="tensor"),
    op("slogdet", "_linalg_slogdet linalg_slogdet slogdet", numpy="slogdet", reads="matrix",
       domain=INVERTIBLE, fails="singular_matrix"),
    op("logdet", reads="matrix", domain=INVERTIBLE, fails="singular_matrix", does="tensor",
       lacks={"numpy": "there it is slogdet"}),
    op("svd", "_linalg_svd linalg_svd svd linalg_svdvals", also="svdvals", numpy="svd svdvals", reads="matrix",
       domain=ANY, fails="singular_matrix", lacks=DECOMPOSES),
    op("eigh", "_linalg_eigh linalg_eigh linalg_eigvalsh", also="eigvalsh", numpy="eigh eigvalsh",
       reads="matrix", domain=ANY, fails="singular_matrix", lacks=DECOMPOSES),
    op("eig", "linalg_eig linalg_eigvals _linalg_eigvals", also="eigvals", numpy="eig eigvals", reads="matrix",
       domain=ANY, fails="singular_matrix", lacks=DECOMPOSES),
    op("qr", "linalg_qr qr geqrf", numpy="qr", reads="matrix", domain=ANY, fails="singular_matrix",
       lacks=DECOMPOSES),
    op("lu", "linalg_lu_factor_ex linalg_lu_factor linalg_lu _lu_with_info", also="lu_factor lu_factor_ex",
       reads="matrix", domain=ANY, fails="singular_matrix", lacks={**DECOMPOSES, **ONLY_SCIPY}),
    op("ldl", "linalg_ldl_factor_ex linalg_ldl_factor linalg_ldl_solve", also="ldl_factor ldl_factor_ex",
       reads="matrix", domain=ANY, fails="singular_matrix", lacks={**DECOMPOSES, **ONLY_SCIPY}),
    op("lstsq", "linalg_lstsq", numpy="lstsq", reads="matrix", domain=ANY, fails="singular_matrix",
       lacks=DECOMPOSES),
    op("pinv", "linalg_pinv pinverse", numpy="pinv", reads="matrix", domain=ANY, fails="singular_matrix",
       lacks=DECOMPOSES),
    # What does not.
    op("matrix_exp", "linalg_matrix_exp matrix_exp", reads="matrix"),
    op("matrix_power", "linalg_matrix_power matrix_power", numpy="matrix_power", reads="matrix"),
    op("householder_product", "linalg_householder_product orgqr", reads="matrix"),
    op("fft", "_fft_c2c _fft_r2c _fft_c2r", reads="transform"),
    op("trace", numpy="trace", reads="unknown"),
)  # fmt: skip
