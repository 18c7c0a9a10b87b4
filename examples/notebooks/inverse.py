# %% [markdown]
# # Settings for a wanted hardness
#
# A model predicts the hardness of an alloy from its settings. The question is the reverse one:
# which settings give a hardness of at least 65, close to those that we use now?
#
# The alloy is made up, so its true hardness is known for all settings. Every proposal of
# `twinned.solve` is compared with it here: a wrong one would be seen.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.neural_network import MLPRegressor

from twinned import AutoTwinRegressor, InverseTwinRegressor, solve


def true_hardness(X):
    much_nickel = np.exp(-(((X["nickel"] - 32) / 12) ** 2) - ((X["zinc"] - 15) / 14) ** 2)
    much_zinc = np.exp(-(((X["nickel"] - 12) / 11) ** 2) - ((X["zinc"] - 36) / 13) ** 2)
    annealing = np.exp(-(((X["temperature"] - 390) / 90) ** 2))
    return 35 + 30 * much_nickel + 26 * much_zinc + 15 * annealing + 2 * np.log2(X["time"])


rng = np.random.RandomState(0)
parts = pd.DataFrame({"nickel": rng.uniform(5, 40, 60), "zinc": rng.uniform(5, 45, 60)})
X = parts.assign(temperature=rng.uniform(250, 500, 60), time=rng.uniform(1, 8, 60)).round(1)
X.insert(0, "copper", (100 - X["nickel"] - X["zinc"]).round(1))  # the parts sum to 100 %
y = true_hardness(X) + rng.normal(size=60)
X.assign(hardness=y).head(3).round(1)

# %% [markdown]
# The truth has two maxima, one with much nickel and one with much zinc, and a best temperature. The
# errors of the measurements have a standard deviation of 1.
#
# ## A model of 60 noisy rows
#
# The blend has only three members, so that the notebook runs quickly.

# %%
model = AutoTwinRegressor(members=["ridge", "gp_matern", "gp_rbf"], random_state=0).fit(X, y)
model.leaderboard_[["member", "rmse", "weight"]]

# %% [markdown]
# ## At least 65, close to the present settings
#
# The time in the oven cannot be changed, its temperature must be between 280 and 450 °C, and the
# parts must sum to 100 %.

# %%
now = {"copper": 60, "nickel": 20, "zinc": 20, "temperature": 320, "time": 2}
limits = {
    "fixed": ["time"],
    "bounds": {"temperature": (280, 450)},
    "constraints": "copper + nickel + zinc = 100",
}
found = solve(model, ">= 65", near=now, **limits, random_state=0)
found.filter(like="change of").round(1)

# %% [markdown]
# Each row is a proposal. The next table has the settings, what the model predicts for them, and the
# truth.


# %%
def check(proposals):
    """The true hardness beside the prediction; the limits are tested."""
    assert np.allclose(proposals[["copper", "nickel", "zinc"]].sum(axis=1), 100, rtol=0, atol=1e-9)
    assert proposals["temperature"].between(280, 450).all()
    assert (proposals["time"] == 2).all()
    shown = [*X, "predicted", "lower", "upper", "probability", "reached"]
    return proposals.filter(items=shown).assign(true=true_hardness(proposals)).round(2)


print(f"now: {true_hardness(pd.Series(now)):.1f}")
check(found)

# %% [markdown]
# The *predictions* of the smallest changes are just 65. So a measurement there is at least 65 with
# a `probability` of only about one half, and the true value may be below 65.
#
# ## With confidence
#
# With `confidence=0.9`, the lower end of the 90 % interval must be at least 65. Larger changes are
# needed for that.

# %%
sure = solve(model, ">= 65", near=now, **limits, confidence=0.9, random_state=0)
check(sure)


# %%
def plot_values(ax, proposals, wanted, title):
    """The wanted value, and the interval, prediction and true value of each proposal."""
    place, true = np.arange(1, len(proposals) + 1), true_hardness(proposals)
    middle = proposals["predicted"]
    ends = [middle - proposals["lower"], proposals["upper"] - middle]
    ax.axhline(wanted, color="black", linewidth=1, label="wanted")
    ax.errorbar(place, middle, ends, fmt="o", capsize=4, label="predicted, 90 % interval")
    ax.plot(place, true, "x", color="tab:red", markersize=9, markeredgewidth=2, label="true")
    ax.set(title=title, xlabel="proposal", ylabel="hardness", xticks=place)


figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
plot_values(axes[0], found, 65, '">= 65"')
plot_values(axes[1], sure, 65, '">= 65" with confidence=0.9')
both = pd.concat([found, sure])
for ax in axes[:2]:
    ax.set_ylim(both["lower"].min() - 1, both["upper"].max() + 5)
axes[0].legend(loc="upper left")
axes[2].plot(X["nickel"], X["zinc"], ".", color="0.75", label="known rows")
axes[2].plot(now["nickel"], now["zinc"], "*", color="black", markersize=12, label="now")
axes[2].plot(found["nickel"], found["zinc"], "o", color="tab:orange", label="without confidence")
axes[2].plot(sure["nickel"], sure["zinc"], "^", color="tab:green", label="with confidence=0.9")
axes[2].set(title="where the proposals lie", xlabel="nickel, %", ylabel="zinc, %", ylim=(3, 58))
legend = axes[2].legend(loc="upper right", ncols=2)

# %% [markdown]
# Left: where the prediction is just 65, a true value below it is within the interval. Middle: with
# confidence, the whole interval is at least 65, and so is the true value. Right: proposals lead
# towards both maxima, and the nearest ones with confidence are farther from the present settings.
#
# ## Several branches
#
# Without `near`, `solve` returns different settings with the wanted value. With the temperature and
# the time fixed, those with a true hardness of 70 are two curves, one around each maximum. A
# wrong proposal would be far from both.

# %%
oven = {"temperature": 380, "time": 2}
mix = "copper + nickel + zinc = 100"
exact = solve(model, 70.0, fixed=oven, constraints=mix, n=8, random_state=0)
check(exact)

# %%
nickel, zinc = np.meshgrid(np.linspace(5, 40, 80), np.linspace(5, 45, 80))
grid = pd.DataFrame({"copper": 100 - nickel.ravel() - zinc.ravel(), "nickel": nickel.ravel()})
grid = grid.assign(zinc=zinc.ravel(), **oven)
figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
for ax, values, title in [
    (axes[0], true_hardness(grid), "true hardness"),
    (axes[1], model.predict(grid), "predicted hardness"),
]:
    values = np.reshape(values, nickel.shape)
    ax.contourf(nickel, zinc, values, levels=np.arange(40, 91, 5), cmap="Blues")
    ax.contour(nickel, zinc, values, levels=[70], colors="black")
    ax.plot(exact["nickel"], exact["zinc"], "o", color="tab:orange", markeredgecolor="black")
    ax.set(title=f"{title} at 380 °C, 2 h; line: 70", xlabel="nickel, %", ylabel="zinc, %")

# %% [markdown]
# The proposals are on the line of the prediction, as they must be. How far they are from the line
# of the truth is the error of the model.
#
# ## A target out of reach
#
# No settings have a hardness of 100. Then the closest ones are returned, with a warning.

# %%
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    closest = solve(model, ">= 100", near=now, **limits, n=3, random_state=0)
print(caught[0].category.__name__, caught[0].message, sep=": ")
best = true_hardness(grid.assign(temperature=390)).max()
print(f"largest true hardness within the limits: {best:.1f}")
check(closest)

# %% [markdown]
# ## InverseTwinRegressor
#
# A network can also be trained the other way round, to predict the input from the target. Where
# several inputs have the same target, it predicts their mean, which has another target. The
# function y = x³ − x has three inputs for each y between −0.38 and 0.38. Of the known rows here,
# more have a large x.
#
# `InverseTwinRegressor` predicts the change of the input from a known row to the wanted target. It
# stays on the branch of that row, and `predict_branches` returns inputs on different branches.

# %%
x = rng.triangular(-1.5, 1.5, 1.5, 150)
values = x**3 - x + 0.02 * rng.normal(size=150)
network = MLPRegressor(hidden_layer_sizes=(50, 50), max_iter=2000, random_state=0)
network.fit(values[:, None], x)
inverse = InverseTwinRegressor(random_state=0).fit(x[:, None], values)

wanted = np.linspace(-0.3, 0.3, 13)
mean = network.predict(wanted[:, None])
branches = inverse.predict_branches(wanted)
own = branches["x0"].to_numpy()
targets = wanted[branches["query"]]
for name, inputs, aims in [("network", mean, wanted), ("InverseTwinRegressor", own, targets)]:
    rmse = np.sqrt(np.mean((inputs**3 - inputs - aims) ** 2))
    print(f"{name}: {len(inputs)} inputs, RMSE of their true y {rmse:.3f}")
branches.head(3).round(3)

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
line = np.linspace(-1.5, 1.5, 200)
axes[0].plot(line, line**3 - line, color="0.6", label="y = x³ − x")
axes[0].plot(own, targets, "o", color="tab:green", label="InverseTwinRegressor")
axes[0].plot(mean, wanted, "x", color="tab:red", label="network")
axes[0].set(title="inputs that were returned", xlabel="x", ylabel="wanted y", ylim=(-0.6, 0.6))
axes[0].legend()
axes[1].plot(wanted, wanted, color="0.6", label="as wanted")
axes[1].plot(targets, own**3 - own, "o", color="tab:green", label="InverseTwinRegressor")
axes[1].plot(wanted, mean**3 - mean, "x", color="tab:red", label="network")
axes[1].set(title="what they give", xlabel="wanted y", ylabel="true y of the returned x")
legend = axes[1].legend()

# %% [markdown]
# Left: a point beside the curve is an input with another y than the wanted one. For functions of
# several inputs with bounds, constraints or categories use `solve`.
