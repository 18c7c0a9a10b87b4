"""What `twinned fit` can learn with, and how it checks what was learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# What learns the differences, and how the report calls it when it learns y itself.
MODELS = {
    "default": "histogram gradient boosting",
    "forest": "random forest",
    "extra-trees": "extra trees",
    "boost": "histogram gradient boosting",
    "knn": "nearest neighbors",
    "ridge": "ridge regression",
    "neural": "neural networks",
}
TAKE_MISSING = ("default", "forest", "extra-trees", "boost")
NEURAL_EFFORT = "fast"  # a command line is waited for; Python has the other efforts
FOLDS = 5


@dataclass(frozen=True)
class Plan:
    """What the options ask for, ready to be built for any number of rows."""

    model: str
    log_target: bool
    pairs: str | int
    anchors: str | int
    seed: int
    missing: bool

    def twin(self, n_rows: int) -> Any:
        """The twin, unfitted; a fold of the check may have fewer rows than anchors wanted."""
        from twinned import NearestAnchors, TwinRegressor

        anchors: Any = self.anchors
        if isinstance(anchors, int):
            metric = "nan_euclidean" if self.missing else "euclidean"
            anchors = NearestAnchors(min(anchors, n_rows), metric=metric)
        if self.model == "neural":
            from twinned import TwinNeuralRegressor

            twin: Any = TwinNeuralRegressor(
                effort=NEURAL_EFFORT, pairs=self.pairs, anchors=anchors, random_state=self.seed
            )
            return self._on_the_right_scale(twin)
        twin = TwinRegressor(
            None if self.model == "default" else self._base(None),
            pairs=self.pairs,
            anchors=anchors,
            random_state=self.seed,
        )
        return self._on_the_right_scale(twin)

    def plain(self, X: pd.DataFrame) -> Any:
        """The base estimator on y itself, with indicators for names as the twin has them."""
        from sklearn.compose import make_column_transformer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder

        if self.model == "neural":
            from twinned import NeuralRegressor

            plain = NeuralRegressor(effort=NEURAL_EFFORT, random_state=self.seed)
            return self._on_the_right_scale(plain)
        base = self._base(self.seed)
        names = [name for name in X.columns if X[name].dtype == "category"]
        if names:
            indicators = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
            base = make_pipeline(
                make_column_transformer((indicators, names), remainder="passthrough"), base
            )
        return self._on_the_right_scale(base)

    def _on_the_right_scale(self, regressor: Any) -> Any:
        if not self.log_target:
            return regressor
        import numpy as np
        from sklearn.compose import TransformedTargetRegressor

        return TransformedTargetRegressor(regressor=regressor, func=np.log, inverse_func=np.exp)

    def _base(self, seed: int | None) -> Any:
        from sklearn.ensemble import (
            ExtraTreesRegressor,
            HistGradientBoostingRegressor,
            RandomForestRegressor,
        )
        from sklearn.linear_model import Ridge
        from sklearn.neighbors import KNeighborsRegressor
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        match self.model:
            case "forest":
                return RandomForestRegressor(100, min_samples_leaf=2, random_state=seed)
            case "extra-trees":
                return ExtraTreesRegressor(100, min_samples_leaf=2, random_state=seed)
            case "knn":
                return make_pipeline(StandardScaler(), KNeighborsRegressor())
            case "ridge":
                return make_pipeline(StandardScaler(), Ridge())
            case _:
                return HistGradientBoostingRegressor(random_state=seed)


def plan_folds(n: int, seed: int, groups: np.ndarray | None) -> list[tuple[Any, Any]]:
    """Rows (learned, left out) of each fold of the check."""
    from twinned.pairing.splits import row_folds

    return row_folds(n, FOLDS, seed, groups)


def cross_validate(
    plan: Plan,
    X: pd.DataFrame,
    y: np.ndarray,
    folds: list[tuple[Any, Any]],
    fitted: Any,
    advance: Callable[[str], None],
) -> dict[str, Any]:
    """Root mean squared errors over rows that each model had not seen.

    From what happened there, `fitted`, the model of all rows, learns how wide intervals must be.
    """
    import warnings

    import numpy as np

    from twinned.intervals.conformal import calibrate_across

    squares: dict[str, list[np.ndarray]] = {"twin": [], "plain": [], "mean": []}
    twins: list[Any] = []
    with warnings.catch_warnings():
        # a rare category is unknown to some fold, which says nothing about the model that is saved
        warnings.simplefilter("ignore")
        for number, (seen, unseen) in enumerate(folds, start=1):
            advance(f"checking, fold {number} of {len(folds)}")
            X_seen, X_unseen = X.iloc[seen], X.iloc[unseen]
            twin = plan.twin(len(seen)).fit(X_seen, y[seen])
            plain = plan.plain(X).fit(X_seen, y[seen])
            twins.append(twin.regressor_ if plan.log_target else twin)
            squares["twin"].append((twin.predict(X_unseen) - y[unseen]) ** 2)
            squares["plain"].append((plain.predict(X_unseen) - y[unseen]) ** 2)
            squares["mean"].append((y[seen].mean() - y[unseen]) ** 2)
        whole = fitted.regressor_ if plan.log_target else fitted
        learned = np.log(y) if plan.log_target else y
        calibrate_across(twins, whole, X, learned, folds).store_in()
    return {
        "folds": len(folds),
        **{f"rmse_{name}": float(np.sqrt(np.concatenate(s).mean())) for name, s in squares.items()},
    }
