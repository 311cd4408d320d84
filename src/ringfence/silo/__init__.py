"""The trusted side: the only code that touches raw records, and the gate that guards them.

The house's own: it may change without notice. `ringfence` says what is public.
"""
