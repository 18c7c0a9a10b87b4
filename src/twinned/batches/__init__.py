"""Batches of rows, such as laboratories: the deviation of each from the common function."""
