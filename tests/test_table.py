import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

from twinned import TwinRegressor
from twinned.exceptions import TextFeatureWarning, UnknownCategoryWarning


@pytest.fixture
def houses(rng):
    """Numeric features of several types, a categorical and an ordinal one."""
    n = 40
    return pd.DataFrame(
        {
            "area": rng.rand(n),
            "wall": pd.Categorical(rng.choice(["brick", "clay", "wood"], n)),
            "state": pd.Categorical(
                rng.choice(["poor", "fair", "good"], n),
                categories=["poor", "fair", "good"],
                ordered=True,
            ),
            "garden": rng.rand(n) > 0.5,
            "rooms": pd.array(rng.randint(1, 6, n), dtype="Int64"),
        }
    )


@pytest.fixture
def price(houses):
    return 2 * houses["area"] + (houses["wall"] == "brick") + 0.1 * houses["state"].cat.codes


def test_kinds_are_read_from_dtypes(houses, price):
    twin = TwinRegressor(Ridge()).fit(houses, price)
    assert twin.fitted_.anchors.schema.kinds == [
        "numeric",
        "categorical",
        "ordinal",
        "numeric",
        "numeric",
    ]
    # first and second: 4 numeric features + 3 indicators; one difference per feature
    assert twin.estimator_.n_features_in_ == 2 * (4 + 3) + 5
    assert list(twin.feature_names_in_) == list(houses.columns)


def test_the_difference_of_categories_is_0_or_1(houses, price):
    """The last pair column, the category mismatch, is 0 or 1 for any number of categories."""
    seen = {}

    class Spy(Ridge):
        def fit(self, X, y, sample_weight=None):
            seen["pairs"] = X
            return super().fit(X, y, sample_weight)

    twin = TwinRegressor(Spy(), pairs="all").fit(houses, price)
    flag = seen["pairs"][:, -1].reshape(40, 40)
    codes = houses["wall"].cat.codes.to_numpy()
    np.testing.assert_array_equal(flag, codes[:, None] != codes[None])
    assert twin.score(houses, price) > 0.999


def test_renaming_categories_changes_nothing(houses, price):
    """Only the equality of categories matters: codes are never subtracted."""
    renamed = houses.assign(
        wall=houses["wall"].cat.rename_categories({"brick": "z", "clay": "a", "wood": "m"})
    )
    first = TwinRegressor(Ridge()).fit(houses, price).predict(houses)
    second = TwinRegressor(Ridge()).fit(renamed, price).predict(renamed)
    np.testing.assert_allclose(first, second, atol=1e-10)


def test_an_ordered_category_is_encoded_by_its_levels(houses, price):
    to_numeric = houses.assign(state=houses["state"].cat.codes.astype(float))
    np.testing.assert_array_equal(
        TwinRegressor(Ridge()).fit(houses, price).predict(houses),
        TwinRegressor(Ridge()).fit(to_numeric, price).predict(to_numeric),
    )


def test_polars_equals_pandas(houses, price):
    table = pl.DataFrame(
        {
            "area": houses["area"].to_list(),
            "wall": pl.Series(houses["wall"].astype(str).to_list(), dtype=pl.Categorical),
            "state": houses["state"].cat.codes.to_list(),
            "garden": houses["garden"].to_list(),
            "rooms": houses["rooms"].astype(int).to_list(),
        }
    )
    pandas_twin = TwinRegressor(Ridge()).fit(houses, price)
    polars_twin = TwinRegressor(Ridge()).fit(table, pl.Series(price.to_numpy()))
    np.testing.assert_array_equal(pandas_twin.predict(houses), polars_twin.predict(table))
    assert list(polars_twin.feature_names_in_) == table.columns


def test_column_order_and_names_are_checked(houses, price):
    twin = TwinRegressor(Ridge()).fit(houses, price)
    with pytest.raises(ValueError, match="feature names"):
        twin.predict(houses[["wall", "area", "state", "garden", "rooms"]])
    with pytest.raises(ValueError, match="feature names"):
        twin.predict(houses.rename(columns={"area": "size"}))


@pytest.mark.parametrize("declared", [["wall"], [1], [False, True, False]])
def test_categories_can_be_declared(houses, price, declared):
    table = houses[["area", "wall", "garden"]]
    by_dtype = TwinRegressor(Ridge()).fit(table, price).predict(table)
    as_text = table.assign(wall=table["wall"].astype(str))
    declared_twin = TwinRegressor(Ridge(), categorical_features=declared).fit(as_text, price)
    np.testing.assert_array_equal(by_dtype, declared_twin.predict(as_text))


def test_array_with_declared_categories(houses, price):
    table = houses[["area", "wall"]]
    array = table.astype(object).to_numpy()
    twin = TwinRegressor(Ridge(), categorical_features=[1]).fit(array, price)
    np.testing.assert_array_equal(
        twin.predict(array), TwinRegressor(Ridge()).fit(table, price).predict(table)
    )


@pytest.mark.parametrize("kind", [str, object, "polars"])
def test_plain_strings_are_categories(houses, price, kind):
    table = houses[["area", "wall"]]
    by_dtype = TwinRegressor(Ridge()).fit(table, price).predict(table)
    text = table.assign(wall=table["wall"].astype(str).astype("str" if kind is str else object))
    if kind == "polars":
        text = pl.DataFrame({"area": text["area"].to_list(), "wall": text["wall"].to_list()})
    twin = TwinRegressor(Ridge()).fit(text, price)
    assert twin.fitted_.anchors.schema.kinds == ["numeric", "categorical"]
    np.testing.assert_array_equal(twin.predict(text), by_dtype)


def test_undeclared_text_raises(houses, price):
    table = houses.assign(wall=houses["wall"].astype(str))
    for categories in (None, ["garden"]):
        with pytest.raises(ValueError, match=r"'wall'.*row 0.*category"):
            TwinRegressor(Ridge(), categorical_features=categories).fit(table, price)


@pytest.mark.parametrize("decimal", [".", ","])
def test_numbers_written_as_text_raise(houses, price, decimal):
    table = houses.assign(area=[f"{value:.3f}".replace(".", decimal) for value in houses["area"]])
    with pytest.raises(ValueError, match=r"'area' holds numbers written as text.*to_numeric"):
        TwinRegressor(Ridge()).fit(table, price)
    declared = table.astype({"area": "category"})
    assert (
        TwinRegressor(Ridge()).fit(declared, price).fitted_.anchors.schema.kinds[0] == "categorical"
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("row {i}", "40 different texts in 40 rows.*identifier"),
        ("0.{i}", "39 of them numbers.*'n.d.'"),
    ],
)
def test_suspicious_text_warns(houses, price, value, message):
    text = [value.format(i=i) for i in range(40)]
    text[3] = text[3] if "row" in value else "n.d."
    with pytest.warns(TextFeatureWarning, match=message):
        TwinRegressor(Ridge()).fit(houses.assign(area=text), price)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TwinRegressor(Ridge()).fit(houses.assign(area=pd.Categorical(text)), price)


def test_missing_values_follow_the_base(houses, price):
    gaps = houses.copy()
    gaps.loc[0, "rooms"] = pd.NA
    gaps.loc[1, "wall"] = np.nan
    gaps.loc[2, "state"] = np.nan
    with pytest.raises(ValueError, match=r"NaN.*HistGradientBoosting"):
        TwinRegressor(Ridge()).fit(gaps, price)
    twin = TwinRegressor(DecisionTreeRegressor(random_state=0)).fit(gaps, price)
    assert np.isfinite(twin.predict(gaps)).all()
    # a missing value gives a missing difference, and missing indicators
    anchors = twin.fitted_.anchors.rows
    row = twin.fitted_.model.features.build(anchors.take([1]), anchors.take([0]))[0]
    assert np.isnan(row[4:7]).all()
    assert np.isnan(row[-1])
    assert np.isnan(row[-2])  # rooms of row 0


def test_unknown_category_differs_from_all_known(houses, price):
    twin = TwinRegressor(Ridge()).fit(houses, price)
    new = houses[:2].assign(wall=pd.Categorical(["straw", "straw"]))
    with pytest.warns(UnknownCategoryWarning, match="'straw'"):
        twin.predict(new)
    # an unknown category equals itself: only the area differs
    a = houses[:1].assign(wall=pd.Categorical(["straw"]))
    zero = twin.predict_difference(a, a)
    assert abs(zero[0]) < 1e-12


def test_added_anchors_add_new_categories(houses, price):
    twin = TwinRegressor(Ridge()).fit(houses, price)
    new = houses[:5].assign(wall=pd.Categorical(["straw"] * 5))
    richer = twin.add_anchors(new, price[:5])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnknownCategoryWarning)
        richer.predict(new)
    assert len(richer.anchors_X_) == 45
    assert twin.fitted_.anchors.schema.categories[1] == ["brick", "clay", "wood"]


def test_unknown_level_raises(houses, price):
    twin = TwinRegressor(Ridge()).fit(houses, price)
    new = houses[:1].assign(state=pd.Categorical(["ruin"], categories=["ruin"], ordered=True))
    with pytest.raises(ValueError, match=r"'ruin'.*'poor', 'fair', 'good'"):
        twin.predict(new)


def test_dates_raise(price):
    table = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=40)})
    with pytest.raises(TypeError, match="'day'"):
        TwinRegressor(Ridge()).fit(table, price)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")
@pytest.mark.parametrize("bad", [[], [[1.0, "a"], [2.0]], 5.0, np.zeros((2, 2, 2))])
def test_shapes_are_checked_before_categories_are_read(bad):
    table = pd.DataFrame({"a": np.arange(4.0), "c": pd.Categorical(list("xyxy"))})
    twin = TwinRegressor(Ridge()).fit(table, np.arange(4.0))
    with pytest.raises((ValueError, TypeError)):
        twin.predict(bad)
    with pytest.raises((ValueError, TypeError)):
        TwinRegressor(Ridge(), categorical_features=[0]).fit(bad, np.arange(4.0))


def test_indicators_are_built_in_blocks(rng):
    """Indicators are built for the queries of a block, not for all."""
    table = pd.DataFrame({"c": pd.Categorical(rng.randint(0, 50, 400).astype(str))})
    twin = TwinRegressor(Ridge(), pairs=2).fit(table, rng.rand(400))
    assert twin.encode(table).take(slice(0, 3)).one_hot.shape == (3, 50)
