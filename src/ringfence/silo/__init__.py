"""The trusted side: the only code that touches raw records, and the gate that guards them.

Internal: may change without notice. `ringfence` lists what is public.
"""
