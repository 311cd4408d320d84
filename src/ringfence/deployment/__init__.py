"""Silos and a server as separate processes, over an engine that carries bytes and is trusted with nothing else.

Internal: may change without notice. `ringfence` lists what is public.
"""
