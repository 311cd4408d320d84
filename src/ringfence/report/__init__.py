"""What people read: statements in plain words, and later figures and pages.

The house's own: it may change without notice. `ringfence` says what is public.
"""
