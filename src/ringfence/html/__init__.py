"""How our pages are written: markup that cannot be injected into, one style, and charts without a drawing library.

The house's own: it may change without notice. `ringfence` says what is public.
"""
