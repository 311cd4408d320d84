"""Estimates with confidence intervals, from noisy answers alone: metrics, statistics, coefficients, comparisons.

Internal: may change without notice. `ringfence` lists what is public.
"""
