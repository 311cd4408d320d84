"""What every party may know: plans, schemas, messages, losses and domains. Nothing here touches a record's file.

The house's own: it may change without notice. `ringfence` says what is public.
"""
