# %% [markdown]
# # The next experiment
#
# Each measurement costs time. Which one should be made next? This notebook looks for the best of
# 100 candidates with few measurements, in batches of three.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from twinned import TwinRegressor, query
from twinned.datasets import make_tf

X, y = (part.to_numpy() for part in make_tf(100, random_state=1))
start = np.random.RandomState(0).permutation(len(X))[:12]
print(f"best of the first 12: {y[start].max():.2f}; best of all: {y.max():.2f}")

# %% [markdown]
# In a real project y of the candidates is unknown; here it is used as the result of an
# experiment.
#
# ## Rank the candidates
#
# A twin of the measured rows ranks all others. `probability_best` is the probability that a
# candidate is the best one, from joint samples of what all of them may be.

# %%
twin = TwinRegressor(ExtraTreesRegressor(10, random_state=0), random_state=0)
twin.fit(X[start], y[start])
candidates = np.setdiff1d(np.arange(len(X)), start)
twin.rank(X[candidates]).head(5).round(3)

# %% [markdown]
# ## Measure in rounds
#
# `query` selects the next batch, from which the twin is fitted again. The strategy
# `"improvement"` selects where improvement on the best known value is expected.


# %%
def measure_in_rounds(select, n_rounds=5):
    """Return the best known value after each round."""
    known, best = start.copy(), [y[start].max()]
    for _ in range(n_rounds):
        pool = np.setdiff1d(np.arange(len(X)), known)
        twin.fit(X[known], y[known])
        known = np.append(known, pool[select(X[pool])])
        best.append(y[known].max())
    return best


def improve(pool):
    return query(twin, pool, 3, strategy="improvement", random_state=0)


found = measure_in_rounds(improve)
print(np.round(found, 2))

# %% [markdown]
# Random candidates are the baseline; it is repeated with 50 seeds.

# %%
rng = np.random.RandomState(0)
random = []
for _ in range(50):
    order = rng.permutation(np.setdiff1d(np.arange(len(X)), start))
    random.append([max(y[start].max(), *y[order[: 3 * i]], -np.inf) for i in range(6)])
measured = 12 + 3 * np.arange(6)
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.plot(measured, found, marker="o", label="expected improvement")
ax.plot(measured, np.mean(random, axis=0), marker="s", label="random, mean of 50")
ax.axhline(y.max(), color="0.5", linestyle="--", label="best of all")
ax.set_xlabel("measurements")
ax.set_ylabel("best known value")
legend = ax.legend()

# %% [markdown]
# This is one start of one problem. `docs/next-experiment.md` names the benchmark with many
# problems and 20 seeds, those where other methods find more included.
#
# ## Other strategies
#
# | strategy | use |
# |---|---|
# | `"improvement"`, `"thompson"` | to find the best candidate |
# | `"uncertainty"` | to learn y everywhere |

# %%
for strategy in ("improvement", "thompson", "uncertainty"):
    rows = query(twin, X[candidates], 3, strategy=strategy, random_state=0)
    print(f"{strategy}: candidates {candidates[rows].tolist()}")
