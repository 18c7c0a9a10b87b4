"""Benchmarks, by question in folders; each is run as a module, such as

python -m benchmarks.accuracy.accuracy_trees --only-table
"""
