"""Table files of the command line and the service: CSV, Excel and Parquet.

`reader` makes a `table` of columns of text from a file. `numbers` detects and parses notations;
`columns` converts a column of text to numbers, categories or parts of dates, and `frames` those
that are features to a DataFrame.
"""
