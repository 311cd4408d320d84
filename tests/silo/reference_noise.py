"""OpenDP's exact sampler of the discrete Gaussian: slow, written by others, and what ours is compared with."""

import numpy as np
from numpy.typing import NDArray
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import enable_features

enable_features("contrib")  # OpenDP's name for measurements whose proofs its own team has not yet reviewed


def reference_noise(count: int, scale: float) -> NDArray[np.int64]:
    """Draw so many whole numbers of the discrete Gaussian of this scale."""
    space = vector_domain(atom_domain(T=float, nan=False), size=count), l2_distance(T=float)
    measurement = make_gaussian(*space, scale=scale, k=0)
    return np.array(measurement([0.0] * count)).astype(np.int64)
