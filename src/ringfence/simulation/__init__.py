"""Simulated federations: many private runs side by side on public data, and sweeps over grids of them.

    >>> from ringfence.simulation.cells import cells
    >>> len(cells({"epsilon": [0.5, 1.0, 2.0], "rounds": [10, 20]}, trials=5))
    30

`engine` runs one plan many times with seeded noise, `sweep` a function over a grid. Nothing here is private.
"""

from ringfence.errors import require_extra

require_extra("simulation", "The simulator", "jax")
