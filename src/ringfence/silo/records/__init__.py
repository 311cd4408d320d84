"""Records: reading, encoding and exact sums over a silo's rows."""
