# %% [markdown]
# # Uncertainty
#
# How far can a prediction be trusted? This notebook makes prediction intervals, checks their
# coverage on new rows, and recognizes rows that are unlike all training rows.

# %%
import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from twinned import PredictionIntervalDisplay, TwinRegressor, cross_conformal
from twinned.datasets import make_wsb

X, y = make_wsb(300, noise=0.05, random_state=0)
X_train, y_train, X_new, y_new = X[:80], y[:80], X[80:], y[80:]

# %% [markdown]
# ## Calibrate
#
# `cross_conformal` cross-validates the twin. The out-of-fold errors show how large errors are,
# and which rows have larger ones. No row is set aside: the final model is fitted to all training
# rows.

# %%
twin = TwinRegressor(ExtraTreesRegressor(10, random_state=0), random_state=0)
calibrated = cross_conformal(twin, X_train, y_train, cv=5, random_state=0)
calibrated

# %% [markdown]
# The half width differs from row to row: it is larger where the model expects larger errors.
#
# ## Check the coverage
#
# Intervals with a confidence of 90 % should cover about 90 % of the new values.

# %%
for confidence in (0.5, 0.8, 0.9, 0.95):
    lower, upper = calibrated.predict_interval(X_new, confidence).T
    covered = np.mean((lower <= y_new) & (y_new <= upper))
    width = np.mean(upper - lower)
    print(f"confidence {confidence:.0%}: {covered:.0%} covered, mean width {width:.2f}")

# %% [markdown]
# In the display, each row is a point on a bar, its interval. A point beside its bar is not
# covered.

# %%
display = PredictionIntervalDisplay.from_estimator(
    calibrated, X_new, y_new, subsample=100, random_state=0
)

# %% [markdown]
# Residuals show the widths more clearly:

# %%
display = PredictionIntervalDisplay.from_estimator(
    calibrated, X_new, y_new, kind="residual_vs_predicted", subsample=100, random_state=0
)

# %% [markdown]
# ## Save the calibration with the model
#
# `store_in` stores the calibration in the twin, which then has `predict_interval` of its own and
# can be saved with `twinned.save`.

# %%
twin = calibrated
print(twin.predict_interval(X_new[:2], confidence=0.9).round(3))

# %% [markdown]
# ## Rows unlike the training rows
#
# Intervals hold for rows like those of the training. `applicability` reports where that is in
# doubt. Here the first new row is as it is, and the second has a resistance that is three times
# too large.

# %%
rows = X_new[:2].copy()
rows.iloc[1, 1] *= 3
twin.applicability(rows)
