"""The shuffle model: counts in shares, sealed so that the server reads their total and the shuffler nothing.

The house's own: it may change without notice. `ringfence` says what is public.
"""
