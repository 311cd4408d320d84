"""Rehearsals of plans without records: what a plan's results will be worth, before anything is charged.

`quote.rehearse` runs all rounds of a plan on records simulated from its schema, with the plan's own noise, and reads
the results as the server does. The simulator runs the same rounds on public records.

Internal: may change without notice. `ringfence` lists what is public.
"""
