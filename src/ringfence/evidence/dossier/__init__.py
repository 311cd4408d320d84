"""The dossier: one signed document for those who decide, of facts that were checked, and of what is missing.

The house's own: it may change without notice. `ringfence` says what is public.
"""
