"""The tables of docs/comparison.md, made by running the tools that it compares: `python -m benchmarks.comparison`.

Every epsilon is for replacing one record, by Ringfence's accountant, unless a column says whose it is. The extras
`all` and `comparison` bring what is needed. `--only` makes one part.
"""
