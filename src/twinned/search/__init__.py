"""Search for rows: inputs that give a wanted target, and rows to label or measure next.

`solve` has the function of this name, which uses `problem`, the wanted targets and the columns that
may change with their bounds and constraints, `forward`, the fitted model as a function of rows, and
`descent`, the steps to rows that reach the targets. `query` has the function of this name.
"""
