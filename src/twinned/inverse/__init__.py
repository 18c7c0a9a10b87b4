"""Inverse prediction: inputs whose predicted target is as wanted.

`problem` has the wanted targets, and the columns that may change with their bounds and linear
constraints, `forward` the fitted model as a function of rows, `search` the search for rows that
reach the targets, and `solving` the function `solve`.
"""
