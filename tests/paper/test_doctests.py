"""The examples in the docstrings of `paper`."""

import doctest
from importlib import import_module

import pytest

MODULES = ["anchor_weights", "figures", "harness", "loop_relabelling", "member_predictions"]
MODULES += ["conclusions.measured", "learned_weights", "model_size", "published", "records"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_the_printed_results(name):
    result = doctest.testmod(import_module(f"paper.{name}"))
    assert result.attempted
    assert not result.failed
