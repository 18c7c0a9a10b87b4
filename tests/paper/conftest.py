"""The committed records, evaluated once."""

from pathlib import Path

import pytest

from paper.conclusions import evaluate
from paper.records import Records

RESULTS = Path(__file__).resolve().parents[2] / "paper" / "results"


@pytest.fixture(scope="session")
def outcomes():
    """Conclusion → variant → outcome, from the committed records."""
    return evaluate(Records(RESULTS))
