"""Files of blends of several targets: what is refused."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from twinned import AutoTwinRegressor, load


@pytest.fixture
def file(data, saved):
    X, y = data
    model = AutoTwinRegressor(members=["ridge"], cv=3, random_state=0)
    return saved(model.fit(X, np.column_stack([y, y + X[:, 1]])))


def test_targets_have_different_names(file):
    assert load(file.path).target_names_ == ["y0", "y1"]
    file.set("y0", "targets_", 1, "target_name_")
    file.assert_refused("has targets that differ")


def test_a_target_has_a_name(file):
    file.set(None, "targets_", 1, "target_name_")
    file.assert_refused("has targets that differ")


def test_joint_scores_are_sorted_probabilities(file):
    file.change_array(lambda scores: scores[::-1].copy(), "joint_scores_")
    file.assert_refused("joint_scores_ is not sorted")
    file.change_array(lambda scores: scores[::-1] + 1.0, "joint_scores_")
    file.assert_refused("not within 0 … 1")


def test_there_are_targets(file):
    file.set([], "targets_")
    file.assert_refused("has no ")


def test_other_classes_have_no_targets(data, saved):
    file = saved(Ridge().fit(*data))
    file.change_json(lambda model: model["part"]["state"]["dict"].update(targets_=[1]))
    file.assert_refused("has unknown parts, targets_")
