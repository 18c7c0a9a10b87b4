"""Benchmarks: speed, memory and accuracy, beside other libraries.

Each module is run from a clone, `python -m benchmarks.table4`, and writes to `benchmarks/results`.
Those with a CSV file of results continue where they stopped (`benchmarks.frame`).
"""
