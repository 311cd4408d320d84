"""The paper's digits experiment as a problem in numbers."""

from dataclasses import replace

from ringfence.research.theory.problem import Problem

WORKED = Problem(
    silos=25, records=1238, dimension=50, lipschitz=1.0, diameter=10.0, epsilon=1.0, delta=1 / 1238**2, smoothness=0.25
)
STRONG = replace(WORKED, strong_convexity=0.1)
ROUGH = replace(WORKED, smoothness=None)
