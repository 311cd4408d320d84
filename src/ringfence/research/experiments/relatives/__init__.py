"""`ringfence reproduce relatives`: published private second-order methods, from their descriptions, at one epsilon."""
