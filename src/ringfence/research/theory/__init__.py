"""The paper in numbers: its formulas, bounds and conversions, with corrections, and loss bounds beside them."""
