"""A fitted twin as a model of BoTorch, which selects from a discrete set of candidates.

Joint samples of the twin are drawn once, at all candidates: each is one function, and the posterior
at some of the candidates is the `EnsemblePosterior` of their values. Acquisition functions that
evaluate samples, such as `qLogExpectedImprovement`, thus compare batches by the same functions.
There are no gradients: batches are selected by `optimize_acqf_discrete`.

    pip install botorch
    python examples/botorch_adapter.py
"""

import numpy as np
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.models.ensemble import EnsembleModel
from botorch.optim import optimize_acqf_discrete
from botorch.sampling.index_sampler import IndexSampler

from twinned import TwinRegressor
from twinned.datasets import make_tf


class AllSamples(IndexSampler):
    """All members of an ensemble in order, the same for all batches, so that these are comparable.

    `IndexSampler` draws members for each batch of rows anew.
    """

    def _construct_base_samples(self, posterior):
        n_samples, n_axes = self.sample_shape[0], len(posterior.batch_shape)
        indices = torch.arange(n_samples).reshape(-1, *[1] * n_axes)
        self.register_buffer("base_samples", indices.expand(n_samples, *posterior.batch_shape))


class TwinModel(EnsembleModel):
    """A fitted twin as an ensemble of joint samples at fixed candidates.

    Parameters
    ----------
    twin : a fitted twin of a single output
    candidates : ndarray of shape (n_candidates, n_features)
        All rows that are evaluated, pending ones included; at most 5,000.
    n_samples : int, default=2048
        Number of samples, which are the members of the ensemble.
    random_state : int, default=0
        Seed of the samples.
    maximize : bool, default=True
        Whether the largest y is the best; otherwise the samples are those of −y, as BoTorch
        maximizes.
    """

    def __init__(self, twin, candidates, n_samples=2048, random_state=0, maximize=True):
        super().__init__()
        self._num_outputs = 1
        rows = np.unique(np.asarray(candidates, dtype=np.float64), axis=0)
        self._numbers = {row.tobytes(): number for number, row in enumerate(rows)}
        samples = twin.sample(rows, n_samples, random_state=random_state)
        self._samples = torch.tensor(samples if maximize else -samples)

    def forward(self, X):
        """(batch, sample, row, 1): the samples at candidates, which are (batch, row, feature)."""
        rows = np.ascontiguousarray(X.detach().cpu().numpy(), dtype=np.float64)
        flat = rows.reshape(-1, rows.shape[-1])
        unknown = [row for row in flat if row.tobytes() not in self._numbers]
        if unknown:
            raise ValueError(f"{unknown[0]} is not one of the candidates (in float64).")
        numbers = [self._numbers[row.tobytes()] for row in flat]
        values = self._samples[:, numbers].to(X).reshape(-1, *X.shape[:-1])
        return values.movedim(0, -2).unsqueeze(-1)

    def expected_improvement(self, best):
        """The acquisition function qLogEI on a value, by all samples.

        Without gradients there is no need to smooth it, which would blur small improvements.
        """
        sampler = AllSamples(torch.Size([len(self._samples)]))
        return qLogExpectedImprovement(
            self, best_f=best, sampler=sampler, tau_relu=1e-9, tau_max=1e-9, fat=False
        )


def main():
    X, y = (part.to_numpy() for part in make_tf(120, random_state=0))
    twin = TwinRegressor(random_state=0).fit(X[:30], y[:30])
    model = TwinModel(twin, X[30:])
    improvement = model.expected_improvement(float(y[:30].max()))
    chosen, _ = optimize_acqf_discrete(improvement, q=3, choices=torch.tensor(X[30:]))
    for row in chosen.numpy():
        print(row.round(3), f"{twin.predict(row[None])[0]:.3f}")


if __name__ == "__main__":
    main()
