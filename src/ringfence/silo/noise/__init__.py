"""Exact samplers over the operating system's randomness."""
