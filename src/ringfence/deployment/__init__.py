"""Silos and a server as separate processes, over an engine that carries bytes and is trusted with nothing else.

The house's own: it may change without notice. `ringfence` says what is public.
"""
