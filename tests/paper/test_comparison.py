"""Tables beside the published values: cells without records, and those of an earlier commit."""

import pandas as pd

from paper.comparison import as_markdown, compare, published
from paper.tables import shown_records


def errors(datasets, methods):
    """Two splits whose errors are the published ones."""
    printed = published().query("table == 'T3'").set_index(["dataset", "method"])["rmse"]
    return pd.DataFrame(
        [
            (key, split, method, printed[key, method])
            for key in datasets
            for method in methods.get(key, methods["all"])
            for split in (0, 1)
        ],
        columns=["dataset", "split", "method", "rmse"],
    )


def test_cells_without_records_are_empty():
    methods = {"all": ["tnnr_all_anchors", "nn_inference", "nn_train_and_inference"]}
    keys = ["BC", "BH", "CS", "EE", "RCL", "WN", "WSB", "YH"]
    part = compare("T3", errors(keys, methods | {"BC": ["nn_train_and_inference"]}))
    text = as_markdown("T3", "", "modern", part, "of an earlier commit than b: paired-networks")
    assert text.endswith("Records of an earlier commit than b: paired-networks.\n")
    (row,) = (line for line in text.splitlines() if line.startswith("| BC"))
    # two errors have no records, and two gains no reference
    assert row.endswith("; 1.000 |  |  |  |  |")


def test_twins_of_other_members_are_not_shown_beside_those_of_the_same():
    twins, nearest = [{"config": {}}], [{"config": {"settings": {"pairs": "nearest"}}}]
    records = {"twin-networks": twins, "paired-networks": nearest}
    assert shown_records(records) == records
    assert shown_records({"twin-networks": twins}) == {"twin-networks": twins}
    same = [*nearest, {"config": {"settings": {"pairs": "all"}}}]
    assert set(shown_records(records | {"paired-networks": same})) == {"paired-networks"}
