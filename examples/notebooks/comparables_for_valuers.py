# %% [markdown]
# # Comparables for valuers
#
# A valuer estimates the price of a flat from sales of similar flats: each known price is
# *adjusted* for what differs, such as area, age or floor. A twin does the same, and learns the
# adjustments from the sales. This notebook shows the sales behind a prediction.

# %% [markdown]
# ## A table of sales
#
# The sales are generated, so that the true effect of each feature is known: prices are in
# thousands, with 4 % noise. Each sale has a label, as it would have in a real file.

# %%
import numpy as np
import pandas as pd

from twinned import AutoTwinRegressor, ComparablesDisplay

rng = np.random.RandomState(0)
n = 110
area = rng.uniform(30, 140, n).round()
age = rng.uniform(0, 80, n).round()
floor = rng.randint(0, 8, n)
lift = rng.rand(n) < 0.5
district = rng.choice(["centre", "harbor", "hills"], n)
factor = pd.Series(district).map({"centre": 1.3, "harbor": 1.0, "hills": 1.15}).to_numpy()
stairs = np.where(lift, 0.0, 0.015 * floor)  # a high floor without a lift costs
price = 4.2 * area * factor * (1 - 0.003 * age) * (1 - stairs) * rng.normal(1, 0.04, n)
flats = pd.DataFrame(
    {
        "area": area,
        "age": age,
        "floor": floor,
        "lift": lift.astype(int),
        "district": pd.Categorical(district),
    }
).set_axis([f"sale {i + 1}" for i in range(n)])
price = pd.Series(price, index=flats.index, name="price")
flats.head(3)

# %% [markdown]
# ## Fit
#
# The last 30 sales are held out. The blend of a twin, a Gaussian process and ridge regression is
# calibrated by its out-of-fold errors.

# %%
known, new = slice(0, 80), slice(80, None)
members = ["ridge", "gp_matern", "tree_twin:fast"]
model = AutoTwinRegressor(members=members, cv=4, random_state=0).fit(flats[known], price[known])
error = np.abs(model.predict(flats[new]) / price[new] - 1)
print(f"median error of held-out sales: {error.median():.1%}")

# %% [markdown]
# ## The sales behind one valuation
#
# Sales are ranked by a learned metric, in which a feature counts as much as it matters for the
# price, so that units do not matter.

# %%
flats[new].iloc[[2]]

# %%
display = ComparablesDisplay.from_estimator(
    model, flats[new], query=2, n=5, target="price, thousands"
)

# %% [markdown]
# A circle is the price of a sale, and the arrow ends at the price adjusted to the flat that is
# valued. Below the arrow are the largest adjustments. The band is the 90 % prediction interval.
#
# ## The adjustment grid
#
# The same as a table: the adjustments of the features sum to `difference`, and `anchor_y` plus
# `difference` is `estimate`. The last row has the weighted means of all other sales, so that the
# weighted estimates sum to the prediction.

# %%
grid = model.explain(flats[new].iloc[[2]], n=5, adjustments=True)
grid

# %%
features = list(flats.columns)
sales = grid[grid["anchor"] >= 0]
print(np.allclose(sales[features].sum(axis=1), sales["difference"]))

# %% [markdown]
# The column `weight` is the share of a sale in the prediction: all 80 sales have the same share
# here, and those shown are the most similar ones. A twin with `NearestAnchors(5)` predicts from
# five sales alone.
#
# ## Two flats compared
#
# By how much do two flats differ in price?

# %%
first, second = flats[new].iloc[[2]], flats[new].iloc[[3]]
print(f"predicted difference: {model.predict_difference(first, second)[0]:.1f}")
print(f"known difference: {price[new].iloc[2] - price[new].iloc[3]:.1f}")
