"""The gate: approval, charging and the release of one answer per round."""
