"""How our pages are written: markup that cannot be injected into, one style, and charts without a drawing library.

Internal: may change without notice. `ringfence` lists what is public.
"""
