"""What people read: pages with statements in plain words, tables and figures.

The house's own: it may change without notice. `ringfence` says what is public.
"""
