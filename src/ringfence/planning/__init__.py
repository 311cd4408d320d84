"""Numbers only: what a plan costs in privacy and how much noise a budget needs; this room never sees a record.

Everything here is a proved upper bound under replace-one adjacency: two data sets are neighbours when one
record of one silo is replaced by another.

- ``events``: what was released, as data that a ledger can store.
- ``accountant``: events to epsilon and delta.
- ``calibrate``: a budget to the least noise that meets it.
- ``paper``: the paper's closed forms by name, each beside the epsilon it truly delivers.
- ``profiles`` and ``pld``: the privacy profiles and their composition, which the accountant rests on.
"""
