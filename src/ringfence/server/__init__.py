"""The untrusted room: sees messages only. Whatever happens here cannot weaken a silo's guarantee.

The house's own: it may change without notice. `ringfence` says what is public.
"""
