"""Numerically unstable code, found in source before it runs."""
