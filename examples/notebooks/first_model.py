# %% [markdown]
# # First model
#
# A *twin* learns differences: from two rows it predicts by how much their targets differ. A new
# row is predicted by adding such differences to the known values of the training rows, the
# *anchors*, and averaging.
#
# This notebook fits a twin to a small table, compares it with the model that it is built from,
# and lets a blend choose between several models.

# %%
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.model_selection import cross_val_score, train_test_split

from twinned import AnchorCurveDisplay, AutoTwinRegressor, TwinRegressor
from twinned.datasets import make_wsb

X, y = make_wsb(120, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=60, random_state=0)
X_train.head(3).round(3)

# %% [markdown]
# The table has 60 training rows of a Wheatstone bridge; the target is a voltage. Twins are
# useful for tables of this size: 60 rows make 3,600 pairs.
#
# ## Trees and their twin
#
# `TwinRegressor` takes any regressor of scikit-learn. It is used as any other: `fit`, `predict`,
# `Pipeline`, `cross_val_score` and `GridSearchCV` work.

# %%
trees = ExtraTreesRegressor(20, random_state=0)
twin = TwinRegressor(trees, random_state=0)
for name, model in {"extra trees": trees, "twinned extra trees": twin}.items():
    scores = cross_val_score(model, X_train, y_train, cv=4, scoring="neg_root_mean_squared_error")
    print(f"{name}: RMSE {-scores.mean():.3f} ± {scores.std() / 2:.3f}")

# %% [markdown]
# The number after ± is the standard error over the four folds.
#
# ## Predictions and differences

# %%
twin.fit(X_train, y_train)
mean, std = twin.predict(X_test[:3], return_std=True)
for value, spread, known in zip(mean, std, y_test[:3], strict=True):
    print(f"predicted {value:.2f}, spread of the anchors {spread:.2f}, known {known:.2f}")

# %% [markdown]
# The spread is how much the estimates of the anchors differ. It is not calibrated; see the
# notebook *Uncertainty* for prediction intervals.
#
# The difference between two rows can be predicted directly:

# %%
difference = twin.predict_difference(X_test[:1], X_test[1:2])
print(f"predicted {difference[0]:.2f}, known {y_test.iloc[0] - y_test.iloc[1]:.2f}")

# %% [markdown]
# ## How many anchors?
#
# The mean over many anchors is usually better than a single one. The curve shows the error of
# cross-validation with 1, 2, 4, … random anchors. Bars are standard errors over the folds.

# %%
small = TwinRegressor(ExtraTreesRegressor(5, random_state=0), random_state=0)
display = AnchorCurveDisplay.from_estimator(small, X_train, y_train, random_state=0)

# %% [markdown]
# ## Let a blend choose
#
# Which model is best depends on the data. `AutoTwinRegressor` cross-validates several models and
# weights them by their out-of-fold errors. Here it has only three members, so that the notebook
# runs quickly; without `members` it also fits networks and forests.

# %%
members = ["ridge", "gp_matern", "tree_twin:fast"]
blend = AutoTwinRegressor(members=members, cv=4, random_state=0).fit(X_train, y_train)
blend.leaderboard_

# %% [markdown]
# The rows of the table are the members, the best first, with their out-of-fold error, its
# standard error, and their weight in the blend. Twinning is not the best choice for every table:
# the voltage is a smooth function without noise, and the Gaussian process has all the weight. R²
# of the blend on the test rows:

# %%
print(f"{blend.score(X_test, y_test):.3f}")
