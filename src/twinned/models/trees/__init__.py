"""Tree ensembles over pairs, evaluated at anchors without building pairs.

`reader` reads a fitted ensemble, `packing` converts its trees into flat arrays, `anchor_masks`
builds bit masks of the anchors, `kernel` adds up leaf values, and `predictor` combines all of it.
"""
