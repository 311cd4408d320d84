"""The shuffler: a party of its own that mixes what it cannot read, keeps it on the disk, and serves it over HTTP.

The house's own: it may change without notice. `ringfence` says what is public.
"""
