"""The command line: one thin file per command group. Each command parses, calls one function, prints.

The house's own: it may change without notice. `ringfence` says what is public.
"""
