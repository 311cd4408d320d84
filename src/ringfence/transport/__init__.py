"""How bytes get from one process to another, whatever they say: HTTP client and server, and an engine's relay.

The house's own: it may change without notice. `ringfence` says what is public.
"""
