"""How documents are kept on a disk, whatever they say: databases, chains of entries, growing files, private files.

Internal: may change without notice. `ringfence` lists what is public.
"""
