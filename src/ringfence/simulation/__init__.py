"""Simulated federations: public data sets, ways to split them over silos, and measures of how silos differ."""
