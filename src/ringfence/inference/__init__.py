"""What noisy second moments tell about coefficients: numbers only, no record and no plan's privacy is touched.

The house's own: it may change without notice. `ringfence` says what is public.
"""
