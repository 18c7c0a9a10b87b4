"""Tables beside the published values: cells that are missing, and records of an earlier commit."""

import pandas as pd

from paper.comparison import as_markdown, compare, missing_cells, published
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


def test_cells_without_records_are_named():
    methods = {"all": ["tnnr_all_anchors", "nn_inference", "nn_train_and_inference"]}
    whole = compare("T3", errors(["BC", "BH", "CS", "EE", "RCL", "TF", "WN", "WSB", "YH"], methods))
    assert missing_cells("T3", whole) is None
    assert "Not run yet" not in as_markdown("T3", "", "modern", whole)
    keys = ["BC", "BH", "CS", "EE", "RCL", "WN", "WSB", "YH"]
    part = compare("T3", errors(keys, methods | {"BC": ["nn_train_and_inference"]}))
    expected = "tnnr_all_anchors on BC, TF; nn_inference on BC, TF; nn_train_and_inference on TF"
    assert sorted(missing_cells("T3", part).split("; ")) == sorted(expected.split("; "))
    text = as_markdown("T3", "", "modern", part, "of an earlier commit than b: paired-networks")
    assert "Not run yet: " in text
    assert text.endswith("Records of an earlier commit than b: paired-networks.\n")
    (row,) = (line for line in text.splitlines() if line.startswith("| BC"))
    assert "nan" not in row  # a gain has no reference there


def test_twins_of_other_members_are_not_shown_beside_those_of_the_same():
    twins, nearest = [{"config": {}}], [{"config": {"settings": {"pairs": "nearest"}}}]
    records = {"twin-networks": twins, "paired-networks": nearest}
    assert shown_records(records) == records
    assert shown_records({"twin-networks": twins}) == {"twin-networks": twins}
    same = [*nearest, {"config": {"settings": {"pairs": "all"}}}]
    assert set(shown_records(records | {"paired-networks": same})) == {"paired-networks"}
