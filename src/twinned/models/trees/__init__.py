"""Tree ensembles over pairs, predicted without building the pairs.

`reader` reads a fitted ensemble, `packed` lays its trees out flat, `sets` makes masks of the
anchors, `kernel` takes the masks down the trees, and `anchored` is all of it together.
"""

from twinned.models.trees.predictor import AnchoredTrees, pays, read_at_anchors

__all__ = ["AnchoredTrees", "pays", "read_at_anchors"]
