"""The shuffler: a party of its own that mixes what it cannot read, keeps it on the disk, and serves it over HTTP.

Internal: may change without notice. `ringfence` lists what is public.
"""
