"""The server: untrusted, sees messages only. Nothing here can weaken a silo's guarantee.

Private to the project: it may change without notice. `ringfence` has the public names.
"""
