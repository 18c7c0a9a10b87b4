"""The examples in the docstrings of `paper` and `benchmarks`."""

import doctest
from importlib import import_module

import pytest

MODULES = ["paper.anchor_weights", "paper.loop_relabelling"]
MODULES += ["paper.member_predictions", "paper.conclusions.measured", "paper.model_size"]
MODULES += ["paper.published", "paper.records", "benchmarks.frame"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_the_printed_results(name):
    result = doctest.testmod(import_module(name))
    assert result.attempted
    assert not result.failed
