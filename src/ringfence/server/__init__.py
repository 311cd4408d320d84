"""The server: untrusted, sees messages only. Nothing here can weaken a silo's guarantee.

Internal: may change without notice. `ringfence` lists what is public.
"""
