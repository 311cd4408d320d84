"""The research behind the product: the paper's theory as functions, its experiments run again, the audit's pages.

Nothing of the product imports this package; the commands `reproduce`, `bounds` and `account --noise` load it on first
use. `theory` needs no more than a silo does; for the rest there is the extra `research`.

Internal: may change without notice. `ringfence` lists what is public.
"""
