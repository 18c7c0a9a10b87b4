"""Search for rows: inputs that give a wanted target, and rows to label or measure next.

`solve` has the function of this name, which uses `optimization`, the search for rows that reach the
wanted targets within bounds and constraints, and `forward`, the fitted model as a function of rows.
`query` has the function of this name.
"""
