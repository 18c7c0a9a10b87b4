"""The committed records, evaluated once."""

from functools import cache
from pathlib import Path

import pytest

from paper.conclusions import evaluate
from paper.records import Records

RESULTS = Path(__file__).resolve().parents[2] / "paper" / "results"


@pytest.fixture(scope="session", autouse=True)
def committed_records_read_once():
    """Read each file of the committed records once, which are the same in all tests."""
    read = Records._read
    read_once = cache(lambda study, variant: read(Records(RESULTS), study, variant))

    def read_records(self, study, variant):
        if self.folder.resolve() == RESULTS:
            records, damaged = read_once(study, variant)
            return list(records), damaged
        return read(self, study, variant)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Records, "_read", read_records)
        yield


@pytest.fixture(scope="session")
def outcomes():
    """Conclusion → variant → outcome, from the committed records."""
    return evaluate(Records(RESULTS))
