"""From what somebody asks for to a plan: which algorithm, how many rounds, how much noise. No record is looked at.

The house's own: it may change without notice. `ringfence` says what is public.
"""
