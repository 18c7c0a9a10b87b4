# %% [markdown]
# # Rows of several laboratories
#
# Six laboratories measured the viscosity of mixtures, each with an instrument of its own. The
# instruments have unknown offsets. Laboratory F is new: three of its values are known.
#
# An offset that is common to the rows of a laboratory is not in their differences. So twinned
# estimates the offsets beside the differences that the features explain, and a new laboratory needs
# a few known rows, but no new fit.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from twinned import AutoTwinRegressor

rng = np.random.RandomState(1)
labs = np.array(list("ABCDEF"))
lab = labs[rng.permutation(np.arange(150) % len(labs))]
X = pd.DataFrame({"temperature": rng.uniform(20, 80, 150), "share": rng.uniform(0, 1, 150)})
true_offsets = pd.Series([4.0, -5.0, 1.0, -1.0, 2.5, 7.0], index=labs)
viscosity = 40 * np.exp(-X["temperature"] / 40) * (1 + X["share"] ** 2)
y = viscosity + true_offsets[lab].to_numpy() + 0.5 * rng.normal(size=150)

new = np.flatnonzero(lab == "F")
known, unknown = new[:3], new[3:]
train = np.flatnonzero(lab != "F")

# %% [markdown]
# ## A model with offsets
#
# `batch` is not a column of the features. Here the blend has only three members, so that the
# notebook runs quickly.

# %%
members = ["ridge", "gp_matern", "tree_twin:small"]
blend = AutoTwinRegressor(members=members, cv=5, random_state=0)
blend.fit(X.iloc[train], y.iloc[train], batch=lab[train])
blend.batch_offsets_.round(2)

# %% [markdown]
# The offsets are relative to the mean of all laboratories, with standard errors. The errors of a
# row of a laboratory whose other rows are known, and of a laboratory without known rows:

# %%
{name: round(error, 2) for name, error in blend.batch_errors_.items()}

# %% [markdown]
# ## A new laboratory
#
# Three known rows give the offset of laboratory F. No model is fitted again.

# %%
extended = blend.add_anchors(X.iloc[known], y.iloc[known], batch="F")
ignoring = AutoTwinRegressor(members=members, cv=5, random_state=0)
ignoring.fit(X.iloc[np.append(train, known)], y.iloc[np.append(train, known)])
for name, predicted in {
    "without laboratories": ignoring.predict(X.iloc[unknown]),
    "three known rows of F": extended.predict(X.iloc[unknown], batch="F"),
}.items():
    print(f"{name}: RMSE {np.sqrt(np.mean((predicted - y.iloc[unknown]) ** 2)):.2f}")
extended.batch_offsets_.loc[["F"]].round(2)

# %%
figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
colors = {"A": "tab:blue", "B": "tab:orange", "F": "tab:green"}
for name in "AB":
    rows = lab == name
    axes[0].plot(
        X["temperature"][rows], y[rows], "o", color=colors[name], label=f"laboratory {name}"
    )
axes[0].set(title="raw values", xlabel="temperature", ylabel="viscosity")
axes[0].legend()
table = extended.batch_offsets_
shade = [colors.get(name, "0.6") for name in table.index]
axes[1].errorbar(table.index, table["offset"], 2 * table["std_error"], fmt="none", ecolor=shade)
label = "estimated, ± 2 standard errors"
axes[1].scatter(table.index, table["offset"], s=20, color=shade, label=label)
relative = true_offsets - true_offsets.mean()
axes[1].plot(relative.index, relative, "_", color="black", markersize=16, label="true")
axes[1].set(title="offsets", xlabel="laboratory")
axes[1].legend()
low, high = extended.predict_interval(X.iloc[unknown], batch="F").T
middle = extended.predict(X.iloc[unknown], batch="F")
ignored = ignoring.predict(X.iloc[unknown])
axes[2].errorbar(
    y.iloc[unknown],
    middle,
    [middle - low, high - middle],
    fmt="o",
    color=colors["F"],
    ecolor="0.8",
    label="with three known rows",
)
axes[2].plot(y.iloc[unknown], ignored, "x", color="0.4", label="laboratories ignored")
ends = [y.iloc[unknown].min(), y.iloc[unknown].max()]
axes[2].plot(ends, ends, color="black", linewidth=1)
axes[2].set(title="laboratory F, new", xlabel="measured", ylabel="predicted, 90 % intervals")
legend = axes[2].legend()
# %% [markdown]
# Left: the values of two laboratories, which differ at equal temperatures. Middle: all offsets.
# That of F is less certain, as only three rows are known. Right: the other rows of F.
#
# ## Explanations
#
# Comparables may be of other laboratories. `offset` is what is added to their value to make it one
# of laboratory F.

# %%
extended.explain(X.iloc[unknown[:1]], 3, batch="F").round(2)
