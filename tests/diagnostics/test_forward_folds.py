"""Folds in the order of time."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from twinned import AutoTwinRegressor, ForwardFolds, TwinRegressor, cross_conformal, diagnose


def test_forward_folds_hold_out_the_later_half(rng):
    times = rng.permutation(100)
    folds = list(ForwardFolds(4).split(times, groups=times))
    assert len(folds) == ForwardFolds(4).get_n_splits(groups=times) == 4
    for training, held_out in folds:
        assert sorted(times[training]) == list(range(times[held_out].min()))
    held_out = np.concatenate([rows for _, rows in folds])
    assert sorted(times[held_out]) == list(range(50, 100))


@pytest.mark.parametrize("dtype", [float, str, "datetime64[D]"])
def test_equal_times_are_in_one_fold(rng, dtype):
    times = rng.randint(1990, 2000, size=80)
    values = times.astype(dtype) if dtype != "datetime64[D]" else times.astype("datetime64[Y]")
    folds = list(ForwardFolds().split(times, groups=values))
    assert len(folds) > 2
    for training, held_out in folds:
        assert times[training].max() < times[held_out].min()
        assert (times < times[held_out].min()).sum() == len(training)


def test_times_must_be_given_and_sortable():
    with pytest.raises(ValueError, match="give them as groups"):
        list(ForwardFolds().split(np.arange(9)))
    with pytest.raises(ValueError, match="The times of the rows cannot be sorted"):
        list(ForwardFolds().split([1, 2], groups=np.array([1, "a"], dtype=object)))


def test_intervals_of_any_model_by_later_rows(rng):
    X, times = rng.normal(size=(60, 2)), np.arange(60) + 5  # as texts, 10 would be before 9
    y = X[:, 0] + 0.1 * times
    model = TwinRegressor(Ridge(), pairs=4, random_state=0)
    crossed = cross_conformal(model, X, y, groups=times, cv=ForwardFolds(3))
    expected = list(ForwardFolds(3).split(X, groups=times))
    held_out = np.concatenate([rows for _, rows in expected])
    assert sorted(crossed.calibration_.rows) == sorted(held_out)
    assert len(crossed.calibration_.scores) == len(held_out)


def test_diagnosis_of_rows_in_time(rng):
    days = rng.permutation(120)
    X = pd.DataFrame({"a": rng.normal(size=120), "hours": days + 0.1 * rng.normal(size=120)})
    y = X["a"] + np.cumsum(rng.normal(size=120))[days]
    blend = AutoTwinRegressor(members=["ridge", "extra_trees:small"], cv=ForwardFolds())
    diagnosis = diagnose(X, y, estimator=blend, groups=days, random_state=0)
    assert "TW105" not in {finding.code for finding in diagnosis.findings}
    table = diagnosis.out_of_fold
    assert len(table) == 60
    np.testing.assert_allclose(table["y"], y[table.index])
    rmse = np.sqrt(np.mean((table["y"] - table["prediction"]) ** 2))
    assert diagnosis.errors.rmse == pytest.approx(rmse)
    mean = diagnosis.leaderboard.set_index("model").loc["mean of y", "rmse"]
    errors = [y[rows] - y[training].mean() for training, rows in diagnosis.blend.folds_]
    assert mean == pytest.approx(np.sqrt(np.mean(np.concatenate(errors) ** 2)))
