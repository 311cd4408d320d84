"""The `ringfence` command: one module per group of commands. `main` puts them together.

Internal: may change without notice. `ringfence` lists what is public.
"""
