"""Tables of the deviations of batches."""

import numpy as np
import pandas as pd
from scipy.special import ndtri

from twinned.batches.effects import BatchEffects
from twinned.rows.schema import Floats, Indices

_MAX_ROWS = 200  # by which means of deviations are computed


def tabulate_offsets(effects: BatchEffects, n_rows: Indices) -> pd.DataFrame:
    """Mean deviations relative to that of all batches, their errors and numbers of rows."""
    features = _sample(effects)
    means, errors = [], []
    for code, known in enumerate(effects.n_known):
        codes = np.full(len(features), code if known else -1)
        means.append(effects.of_rows(features, codes)[0].mean() - effects.center)
        errors.append(np.sqrt(effects.covariance(features, codes).mean()))
    columns = {"offset": means, "std_error": errors, "n_rows": n_rows}
    return pd.DataFrame(columns, index=pd.Index(effects.names, name="batch"))


def tabulate_effects(
    effects: BatchEffects, n_rows: Indices, columns: dict[str, int]
) -> pd.DataFrame:
    """What `batch_effects_` of an estimator has; `columns` are encoded features by their names."""
    table = tabulate_offsets(effects, n_rows).rename(columns={"offset": "deviation"})
    features, n_known = _sample(effects), effects.n_known
    for name, column in columns.items():
        step = np.zeros(features.shape[1])
        step[column] = 0.1 * np.nanstd(features[:, column]) or 1.0
        slopes = []
        for code in range(len(effects.names)):
            codes = np.full(len(features), code if n_known[code] else -1)
            high, low = (effects.of_rows(features + sign * step, codes)[0] for sign in (1.0, -1.0))
            slopes.append((high - low).mean() / (2.0 * step[column]))
        table[f"slope {name}"] = slopes
    table["noise_std"] = effects.within * np.sqrt(effects.noise_ratio)
    held_out = effects.held_out(effects.known_batches)
    std = np.sqrt(held_out.variance) * effects.error_ratio(held_out.codes)
    is_covered = np.abs(held_out.errors) <= ndtri(0.95) * std
    rows = pd.DataFrame({"rmse": held_out.errors**2, "coverage": is_covered})
    means = rows.groupby(held_out.codes).mean().reindex(range(len(table)))
    table["rmse"] = means["rmse"].to_numpy() ** 0.5
    table["coverage"] = means["coverage"].to_numpy()
    return table


def _sample(effects: BatchEffects) -> Floats:
    """Features of some known rows of all batches."""
    order = np.random.RandomState(0).permutation(len(effects.codes))[:_MAX_ROWS]
    return effects.features[order]
