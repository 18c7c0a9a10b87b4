"""Reproduction of the paper's tables and figures: `python -m paper`, from a clone.

`experiments` lists the studies, tables and figures; `studies` runs the trials of a study and
`records` stores their results; `tables` and `figures` show the records, and `comparison` puts them
beside the published values. `benchmarks.frame` is shared with `benchmarks`.
"""
