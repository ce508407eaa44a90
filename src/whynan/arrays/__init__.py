"""Any array library, operation by operation: NumPy, CuPy, JAX and whatever follows the standard."""
