"""Pairs, anchors, weights, loops and row-wise splits."""
