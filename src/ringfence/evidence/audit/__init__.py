"""Ringfence attacks its own guarantee: a hostile server plays against the real gate, and the score is compared."""
