"""Ringfence attacks its own guarantee: a hostile server plays against the real gate, and the score is compared.

The house's own: it may change without notice. `ringfence` says what is public.
"""
