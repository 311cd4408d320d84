"""How documents are kept on a disk, whatever they say: databases, chains of entries, growing files, private files.

The house's own: it may change without notice. `ringfence` says what is public.
"""
