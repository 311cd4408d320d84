"""Trained models: prediction, export, cards, coefficient summaries and privacy statements.

Internal: may change without notice. `ringfence` lists what is public.
"""
