"""Inverse prediction: inputs whose predicted target is as wanted.

`space` has the columns that may change with their bounds and linear constraints, `forward` the
fitted model as a function of rows, `goals` the wanted targets, `search` the search for rows that
reach them, and `solving` the function `solve`.
"""
