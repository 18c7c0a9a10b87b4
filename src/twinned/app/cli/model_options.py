"""Models of `twinned fit`: construction from the options, and cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twinned.exceptions import UnknownCategoryWarning

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from twinned.app.cli.training_data import TrainingData

# The base estimator of each --model, as it is called in the output; auto has several members.
MODELS = {
    "auto": "blend",
    "twin": "histogram gradient boosting",
    "forest": "random forest",
    "extra-trees": "extra trees",
    "boost": "histogram gradient boosting",
    "knn": "nearest neighbors",
    "ridge": "ridge regression",
    "neural": "neural networks",
}
MODELS_ALLOWING_NAN = ("auto", "twin", "forest", "extra-trees", "boost", "neural")
# Random partners for each row of a twin of nearest neighbors with --pairs auto: it searches all
# pairs for each pair that it predicts, which takes minutes for the 90,000 pairs of 300 rows.
NEIGHBOR_PARTNERS = 8
NEURAL_EFFORT = "fast"  # a command should return soon; Python has the other efforts
# Defaults of --model auto, so that a command ends soon.
BLEND_EFFORT, BLEND_MINUTES = "fast", 5
EFFORTS = ("fast", "balanced", "thorough")
N_FOLDS = 5


def with_log_target(regressor: Any) -> Any:
    """Return a regressor that fits another one to the logarithm of the target."""
    import numpy as np
    from sklearn.compose import TransformedTargetRegressor

    return TransformedTargetRegressor(regressor=regressor, func=np.log, inverse_func=np.exp)


@dataclass(frozen=True)
class ModelOptions:
    """Options of `twinned fit` that determine a model, for any number of rows."""

    model: str
    log_target: bool
    pairs: str | int
    anchors: str | int
    seed: int
    missing_values: bool
    jobs: int = 1
    effort: str = BLEND_EFFORT
    time_budget: float | None = None

    def make_twin(self, n_rows: int) -> Any:
        """Return an unfitted twin; it uses at most `n_rows` nearest anchors, as folds are small."""
        from twinned import AutoTwinRegressor, NearestAnchors, TwinRegressor

        if self.model == "auto":
            blend = AutoTwinRegressor(
                effort=self.effort,
                time_budget=self.time_budget,
                n_jobs=self.jobs,
                random_state=self.seed,
                verbose=1,
            )
            return with_log_target(blend) if self.log_target else blend
        anchors: Any = self.anchors
        if isinstance(anchors, int):
            metric = "nan_euclidean" if self.missing_values else "euclidean"
            anchors = NearestAnchors(min(anchors, n_rows), metric=metric)
        if self.model == "neural":
            from twinned import TwinNeuralRegressor

            twin = TwinNeuralRegressor(effort=NEURAL_EFFORT)
        else:
            twin = TwinRegressor(None if self.model == "twin" else self._base_estimator())
        pairs = NEIGHBOR_PARTNERS if (self.model, self.pairs) == ("knn", "auto") else self.pairs
        twin.set_params(pairs=pairs, anchors=anchors, n_jobs=self.jobs, random_state=self.seed)
        return with_log_target(twin) if self.log_target else twin

    def make_plain(self, X: pd.DataFrame, twin: Any) -> Any:
        """Return the unfitted base estimator of a fitted twin for y itself.

        The settings are those of the twin; categories are one-hot encoded.
        """
        from sklearn.compose import make_column_transformer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder

        from twinned.diagnostics.cross_validation import plain_estimator

        plain: Any = plain_estimator(twin, twin, len(twin.anchors_y_), self.seed)
        if self.model != "neural":
            categorical = [name for name in X.columns if X[name].dtype == "category"]
            one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
            encoder = make_column_transformer((one_hot, categorical), remainder="passthrough")
            plain = make_pipeline(encoder, plain)
        return with_log_target(plain) if self.log_target else plain

    def _base_estimator(self) -> Any:
        from sklearn import ensemble
        from sklearn.linear_model import Ridge
        from sklearn.neighbors import KNeighborsRegressor
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        match self.model:
            case "forest":
                return ensemble.RandomForestRegressor(100, min_samples_leaf=2)
            case "extra-trees":
                return ensemble.ExtraTreesRegressor(100, min_samples_leaf=2)
            case "knn":
                return make_pipeline(StandardScaler(), KNeighborsRegressor())
            case "ridge":
                return make_pipeline(StandardScaler(), Ridge())
            case _:
                return ensemble.HistGradientBoostingRegressor()

    def validate_and_calibrate(
        self,
        data: TrainingData,
        folds: list[tuple[Any, Any]],
        fitted: Any,
        begin_step: Callable[[str], None],
    ) -> dict[str, Any]:
        """Cross-validate the twin, the plain base estimator and the mean of the other rows.

        `folds` are those of the known rows; the twins of all folds are fitted to the rows with a
        limit, too. The errors of the held-out rows also calibrate the prediction intervals that are
        stored in `fitted`, the twin of all rows.

        Returns
        -------
        dict
            `folds`, the number of folds, the RMSE over all held-out rows of each model,
            `rmse_twin`, `rmse_plain` and `rmse_mean`, and `plain`, the plain base estimator.
        """
        import numpy as np

        from twinned.diagnostics.cross_validation import plain_estimator
        from twinned.diagnostics.errors import predict_mean
        from twinned.diagnostics.recommendation import describe_estimator

        censored = np.flatnonzero(np.isnan(data.y))
        known = np.flatnonzero(~np.isnan(data.y))
        X, y = data.X.iloc[known], data.y[known]
        errors: dict[str, list[np.ndarray]] = {"rmse_twin": [], "rmse_plain": []}
        twins = []
        with warnings.catch_warnings():
            # A category may be absent from the training rows of a fold; the saved model knows it.
            warnings.simplefilter("ignore", UnknownCategoryWarning)
            for number, (train, test) in enumerate(folds, start=1):
                begin_step(f"cross-validation, fold {number} of {len(folds)}")
                rows = np.concatenate([known[train], _outside_groups(data, censored, known[test])])
                target, bounds = data.target_arguments(self.log_target, rows)
                twin = self.make_twin(len(train)).fit(data.X.iloc[rows], target, **bounds)
                twins.append(twin.regressor_ if self.log_target else twin)
                plain = self.make_plain(X, twins[-1]).fit(X.iloc[train], y[train])
                errors["rmse_twin"].append(twin.predict(X.iloc[test]) - y[test])
                errors["rmse_plain"].append(plain.predict(X.iloc[test]) - y[test])
            whole = fitted.regressor_ if self.log_target else fitted
            fitted_y = np.log(y) if self.log_target else y
            CrossCalibrated(twins, whole, X, fitted_y, folds).store_in()
        errors["rmse_mean"] = [predict_mean(y) - y]  # the same as in `twinned advise`
        rmse = {name: np.sqrt((np.concatenate(e) ** 2).mean()) for name, e in errors.items()}
        plain = describe_estimator(plain_estimator(whole, whole, len(y), self.seed))
        return {"folds": len(folds), "plain": plain} | {k: float(v) for k, v in rmse.items()}


def _outside_groups(data: TrainingData, rows: np.ndarray, held_out: np.ndarray) -> np.ndarray:
    """Return the rows that are in no group of the held-out rows."""
    import numpy as np

    if data.groups is None:
        return rows
    return rows[~np.isin(data.groups[rows], data.groups[held_out])]
