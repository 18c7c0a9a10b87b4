"""Tables and tools of other libraries: pyarrow, dates, duplicate names, selection of features."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.linear_model import Ridge

from twinned import TwinRegressor

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"noise": RNG.normal(size=40), "a": RNG.normal(size=40)})
TABLE["m"] = RNG.choice(["brick", "wood"], 40)
Y = TABLE["a"] + (TABLE["m"] == "wood")


def fit(X, y=Y):
    return TwinRegressor(Ridge(), pairs=4, random_state=0).fit(X, y)


def test_a_table_of_pyarrow_with_text_predicts_as_that_of_pandas():
    arrow = pa.Table.from_pandas(TABLE)
    np.testing.assert_array_equal(
        fit(arrow, Y.to_numpy()).predict(arrow), fit(TABLE).predict(TABLE)
    )


@pytest.mark.parametrize(
    "convert",
    [
        lambda table: table,
        lambda table: pa.table(
            [pa.array(table.iloc[:, j]) for j in range(2)], names=list(table.columns)
        ),
    ],
)
def test_columns_of_the_same_name_are_refused(convert):
    table = TABLE[["noise", "a"]].set_axis(["b", "b"], axis=1)
    with pytest.raises(ValueError, match=r"^Expected unique column names, got:\n- 'b' 2 times$"):
        fit(convert(table))


@pytest.mark.parametrize(
    "dates",
    [
        pd.date_range("2020", periods=40),
        [datetime.date(2020, 1, 1)] * 40,
        pd.to_timedelta(range(40)),
    ],
)
def test_dates_name_the_transformer_to_use(dates):
    with pytest.raises(TypeError, match=r"Column 'day' holds .*numbers.*skrub's TableVectorizer"):
        fit(TABLE.assign(day=dates))


def test_features_are_selected_by_their_relevance():
    X = TABLE[["noise", "a"]]
    twin = fit(X, TABLE["a"])
    np.testing.assert_array_equal(twin.feature_importances_, twin.feature_relevance_)
    assert SelectFromModel(twin, prefit=True).get_support().tolist() == [False, True]
    selection = RFE(TwinRegressor(Ridge(), pairs=4), n_features_to_select=1).fit(X, TABLE["a"])
    assert selection.get_support().tolist() == [False, True]
