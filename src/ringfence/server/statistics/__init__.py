"""What is made of the answers to `Statistics`: counts, means, variances, quantiles and tables, each with its intervals.

All of it is computed from noisy answers, and so free of further cost. Every number is a constant plus a sum of noisy
numbers of which none is redundant: whatever is added up, per silo or over silos, agrees.
"""

from ringfence.server.statistics.intervals import Estimate
from ringfence.server.statistics.summary import CrossTable, DataSummary, Difference, Numbers, Shares, Tables, tabulate

__all__ = ["CrossTable", "DataSummary", "Difference", "Estimate", "Numbers", "Shares", "Tables", "tabulate"]
