"""What answers to an evaluation say: figures with intervals that cover sampling and noise. No record comes here.

The house's own: it may change without notice. `ringfence` says what is public.
"""
