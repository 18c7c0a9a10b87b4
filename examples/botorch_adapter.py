"""A fitted twin as a model of BoTorch, which selects from a discrete set of candidates.

The posterior is an `EnsemblePosterior` of joint samples of the twin, for all acquisition functions
that evaluate samples, such as `qLogExpectedImprovement`. It has no gradients: candidates come from
a list, by `optimize_acqf_discrete`.

    pip install botorch
    python examples/botorch_adapter.py
"""

import numpy as np
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.models.ensemble import EnsembleModel
from botorch.optim import optimize_acqf_discrete

from twinned import TwinRegressor
from twinned.datasets import make_tf

MAX_ROWS = 2000  # whose joint samples are drawn at once


class TwinModel(EnsembleModel):
    """A fitted twin as an ensemble of joint samples.

    Parameters
    ----------
    twin : a fitted twin of a single output
    n_samples : int, default=256
        Number of samples, which are the members of the ensemble.
    random_state : int, default=0
        Seed of the samples; the same for all calls, so that acquisition values can be compared.
    maximize : bool, default=True
        Whether the largest y is the best; otherwise the samples are those of −y, as BoTorch
        maximizes.
    """

    def __init__(self, twin, n_samples=256, random_state=0, maximize=True):
        super().__init__()
        self._num_outputs = 1
        self.twin, self.n_samples, self.random_state = twin, n_samples, random_state
        self.sign = 1.0 if maximize else -1.0

    def forward(self, X):
        """(batch, sample, row, 1): joint samples of the rows of each batch, (batch, row, feature).

        Leading axes are those of X.
        """
        *batch, n_rows, n_features = X.shape
        flat = X.detach().cpu().double().numpy().reshape(-1, n_rows, n_features)
        per_call = max(1, MAX_ROWS // n_rows)
        parts = [
            self._sample(flat[start : start + per_call]) for start in range(0, len(flat), per_call)
        ]
        samples = self.sign * np.concatenate(parts)
        return torch.as_tensor(samples).to(X).reshape(*batch, self.n_samples, n_rows, 1)

    def _sample(self, rows):
        """(batch, sample, row): joint samples of (batch, row, feature)."""
        n_batches, n_rows, n_features = rows.shape
        samples = self.twin.sample(
            rows.reshape(-1, n_features), self.n_samples, random_state=self.random_state
        )
        return samples.reshape(self.n_samples, n_batches, n_rows).transpose(1, 0, 2)


def main():
    X, y = (part.to_numpy() for part in make_tf(120, random_state=0))
    twin = TwinRegressor(random_state=0).fit(X[:30], y[:30])
    candidates = torch.tensor(X[30:])
    improvement = qLogExpectedImprovement(TwinModel(twin), best_f=float(y[:30].max()))
    chosen, _ = optimize_acqf_discrete(improvement, q=3, choices=candidates)
    for row in chosen.numpy():
        print(row.round(3), f"{twin.predict(row[None])[0]:.3f}")


if __name__ == "__main__":
    main()
