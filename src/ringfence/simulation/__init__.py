"""Simulated federations: many private runs side by side on public data, and sweeps over grids of them."""
