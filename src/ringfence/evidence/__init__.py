"""What convinces others: verification, reports, dossiers and audits.

Internal: may change without notice. `ringfence` lists what is public.
"""
