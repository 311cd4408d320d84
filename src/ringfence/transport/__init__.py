"""How bytes get from one process to another, whatever they say: HTTP client and server, and an engine's relay.

Internal: may change without notice. `ringfence` lists what is public.
"""
