"""Deviations of batches: their covariance, what their known rows show, and predictions of them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.spatial.distance import cdist

from twinned.exceptions import UnknownBatchWarning
from twinned.rows.neighbors import KERNELS
from twinned.rows.schema import Floats, Indices, Queries
from twinned.rows.validation import batch_labels, unknown_batches

_TAIL_OF_RATIOS = 2.0  # degrees of freedom of the t distribution of logarithms of variances
N_STEPS = 5  # of these variances

_DIGITS = 8  # of the standard deviation of the errors, in y without deviations
_TAIL_OF_CONSTANTS = 2.0  # degrees of freedom of the t distribution of constants
_LEAST_COMMON_ROWS = 3.0  # of a batch that is added
_ROUNDING = 1e-10  # added to variances, in units of the largest
LOST_FREEDOM = 1.5  # by which t quantiles of 95 % are those of a normal distribution, to 4 %


@dataclass(frozen=True, eq=False)
class _Solution:
    """The equations of a batch, solved for a constant of a normal distribution."""

    rows: Indices  # of the known ones
    scaled: Floats  # (row, feature)
    factor: Any  # of the covariance without that of the constants; None where it is diagonal
    ones: Floats  # (row,): its inverse times ones
    constant: float
    variance: float  # of the constant
    precision: Floats  # (row,): diagonal of the inverse covariance with that of the constants
    solved: Floats  # (row,): the inverse covariance times the residuals


class HeldOutResiduals(NamedTuple):
    """Residuals as expected by the others of their batch. All arrays are (row,)."""

    rows: Indices
    codes: Indices
    errors: Floats
    variance: Floats  # of the errors, in units of those of the batch
    share: Floats  # of the variance that is that of the error of the row

    @property
    def squares(self) -> Floats:
        """Squares of scaled errors."""
        return self.errors**2 / self.variance

    def sum_shares(self, values: Floats | float, n_batches: int) -> Floats | Indices:
        """(batch,): sums of values times the shares of their rows."""
        return np.bincount(self.codes, self.share * values, n_batches)


@dataclass(frozen=True, eq=False)
class BatchEffects:
    """Deviations of batches, from residuals of their known rows.

    A residual is the deviation of its batch plus an error. With `shrinks`, constants have their
    estimated variance; else they have any size, so that one of a batch has no effect on others.
    """

    names: list[str]
    deviation: Deviation
    features: Floats  # (known row, encoded feature)
    codes: Indices  # (known row,)
    residual: Floats  # (known row,)
    weight: Floats  # (known row,); 0 where it is not used
    noise_ratio: Floats  # (batch,): variance of the errors, in units of the common one
    common_rows: Floats  # (batch,): rows that the common variance of the errors counts for
    shrinks: bool
    center: float = 0.0  # the mean of the constants
    kind: str = "offset"  # of deviations that are compared
    _solutions: dict[int, _Solution] = field(default_factory=dict, init=False)

    # --- errors of known rows -----------------------------------------------------------------

    def held_out(self, codes: Indices) -> HeldOutResiduals:
        """Errors of residuals of some batches, as expected by the others of their batch."""
        errors, variances, rows = [], [], []
        for code in codes:
            solution = self.solution(int(code))
            used = solution.precision > 1e-9 / self.deviation.noise
            noise = self.deviation.noise / self.weight[solution.rows]
            ratio = self.noise_ratio[code]
            errors.append(solution.solved[used] / solution.precision[used])
            of_deviation = np.maximum(1.0 / solution.precision[used] - noise[used] * ratio, 0.0)
            variances.append(of_deviation / ratio + noise[used])
            rows.append(solution.rows[used])
        row, variance = np.concatenate(rows), np.concatenate(variances)
        share = self.deviation.noise / self.weight[row] / variance
        return HeldOutResiduals(row, self.codes[row], np.concatenate(errors), variance, share)

    @cached_property
    def known_batches(self) -> Indices:
        """Codes of batches with known rows that are used."""
        return np.unique(self.codes[self.weight > 0])

    def log_likelihood(self) -> float:
        """Of the residuals, by the others of their batch, up to a constant."""
        held_out = self.held_out(self.known_batches)
        variances = held_out.variance * self.noise_ratio[held_out.codes]
        return float(log_density(held_out.errors**2, variances).sum())

    def with_noise_ratios(self, codes: Indices) -> BatchEffects:
        """With the variances of the errors of some batches that their held-out errors show."""
        if np.isinf(self.common_rows[codes]).all():
            return self
        ratio = self.noise_ratio.copy()
        ratio[codes] = 1.0
        n = len(ratio)
        codes = np.intersect1d(codes, self.known_batches)
        for _ in range(N_STEPS if len(codes) else 0):
            held_out = replace(self, noise_ratio=ratio.copy()).held_out(codes)
            sums = held_out.sum_shares(held_out.squares, n)
            counts = held_out.sum_shares(1.0, n)
            ratio[codes] = noise_ratio(sums, counts, self.common_rows)[codes]
        return replace(self, noise_ratio=ratio)

    # --- equations ----------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_solutions": {}}

    def solution(self, code: int) -> _Solution:
        """The solved equations of a batch with known rows.

        Residuals r have the mean c and the covariance S + t·11ᵀ, S that of functions and errors and
        t that of constants, infinite without `shrinks`. Given r, the constant has the variance
        v = 1 / (1/t + 1ᵀS⁻¹1) and the mean c + u, u = v·1ᵀS⁻¹(r − c); and a function with the
        covariances K to the rows has the mean K·`solved`, `solved` = S⁻¹(r − c − u). `precision` is
        the diagonal of S⁻¹ − v·S⁻¹11ᵀS⁻¹: given the others, a row errs by solved / precision, with
        the variance 1 / precision.
        """
        if code in self._solutions:
            return self._solutions[code]
        rows = np.flatnonzero((self.codes == code) & (self.weight > 0))
        deviation = self.deviation
        noise = deviation.noise * self.noise_ratio[code] / self.weight[rows]
        scaled = deviation.scaled(self.features[rows])
        residual = self.residual[rows] - self.center
        factor = None
        if deviation.is_constant:
            precision = 1.0 / np.maximum(noise, 1e-280)
            ones, by_residual = precision, precision * residual
        else:
            covariance = deviation.covariance(scaled, scaled)
            # so that it is positive definite despite rounding, where there is next to no noise
            noise = noise + _ROUNDING * np.diag(covariance).max()
            covariance[np.diag_indices_from(covariance)] += noise
            factor = np.linalg.cholesky(covariance)
            inverse = cho_solve((factor, True), np.eye(len(rows)))
            precision, ones = np.diag(inverse), inverse.sum(axis=0)
            by_residual = inverse @ residual
        variance = 1.0 / (self._precision_of_constant(by_residual.sum(), ones.sum()) + ones.sum())
        constant = float(variance * by_residual.sum())
        self._solutions[code] = solution = _Solution(
            rows=rows,
            scaled=scaled,
            factor=factor,
            ones=ones,
            constant=constant + self.center,
            variance=variance,
            precision=precision - variance * ones * ones,
            solved=by_residual - constant * ones,
        )
        return solution

    def _precision_of_constant(self, total: float, precision: float) -> float:
        """Of a batch whose residuals show `total` / `precision`; 0 where it has any size."""
        if not self.shrinks:
            return 0.0
        # constants have a t distribution, as a batch may be far from all others
        precision, between = max(precision, 1e-280), self.deviation.between
        score = (total / precision) ** 2 / (between + 1.0 / precision)
        widening = (_TAIL_OF_CONSTANTS + score) / (_TAIL_OF_CONSTANTS + 1.0)
        return 1.0 / max(between * widening, 1e-280)

    # --- predictions --------------------------------------------------------------------------

    @property
    def within(self) -> float:
        """Standard deviation of the errors."""
        return float(np.sqrt(self.deviation.noise))

    @cached_property
    def n_known(self) -> Indices:
        """(batch,): the number of known rows that are used."""
        return np.bincount(self.codes[self.weight > 0], minlength=len(self.names))

    def codes_of(self, batch: Any, n_rows: int) -> Indices:
        """(row,): the number of the batch of each row; below −1 for one without known rows."""
        labels, number = batch_labels(batch, n_rows), self._code_of_label()
        if unknown := list(dict.fromkeys(label for label in labels if label not in number)):
            warnings.warn(unknown_batches(unknown), UnknownBatchWarning, stacklevel=4)
        number |= {label: -2 - i for i, label in enumerate(unknown)}  # they are not all the same
        return np.array([number[label] for label in labels], np.intp)

    def unknown_labels(self, batch: Any, n_rows: int) -> list[str | None]:
        """Labels of batches without known rows, None where missing."""
        number = self._code_of_label()
        return [label for label in batch_labels(batch, n_rows) if label not in number]

    def _code_of_label(self) -> dict[str | None, int]:
        n_known = self.n_known
        return {name: code for code, name in enumerate(self.names) if n_known[code]}

    def with_deviations(self, queries: Queries, codes: Indices) -> Queries:
        """Queries with the deviations of their batches; codes below 0 are unknown ones."""
        offset, offset_std = self.of_rows(queries.encoded_features, codes)
        ratio = self.error_ratio(codes)
        return replace(
            queries, offset=offset, offset_std=offset_std, error_ratio=ratio, batch=codes
        )

    def of_rows(self, features: Floats, codes: Indices) -> tuple[Floats, Floats]:
        """(row,): deviations and their standard errors; a code below 0 is an unknown batch."""
        mean, variance = np.empty((2, len(codes)))
        scaled = self.deviation.scaled(features)
        prior = self.deviation.variance(scaled)
        for code in np.unique(codes):
            rows = np.flatnonzero(codes == code)
            explained, of_constant, mean[rows] = self._condition(int(code), scaled[rows])
            variance[rows] = np.maximum(prior[rows] - np.sum(explained**2, axis=1), 0.0)
            variance[rows] += of_constant**2
        return mean, np.sqrt(variance)

    def covariance(self, features: Floats, codes: Indices) -> Floats:
        """(row, row): covariances of the errors of deviations."""
        scaled = self.deviation.scaled(features)
        result = np.zeros((len(codes), len(codes)))
        for code in np.unique(codes):
            rows = np.flatnonzero(codes == code)
            explained, of_constant, _ = self._condition(int(code), scaled[rows])
            result[np.ix_(rows, rows)] = (
                self.deviation.covariance(scaled[rows], scaled[rows])
                - explained @ explained.T
                + np.outer(of_constant, of_constant)
            )
        return result

    def _condition(self, code: int, scaled: Floats) -> tuple[Floats, Floats, Floats | float]:
        """(row, known row), whose inner products the known rows of the batch explain.

        And (row,), whose products are what is left of the variance of the constant; and the
        expected deviations.
        """
        nothing = np.zeros((len(scaled), 0))
        if code < 0 or not self.n_known[code]:
            return nothing, np.full(len(scaled), self.deviation.between**0.5), self.center
        solution = self.solution(code)
        std = solution.variance**0.5
        if solution.factor is None:
            return nothing, np.full(len(scaled), std), solution.constant
        cross = self.deviation.covariance(scaled, solution.scaled)
        explained = solve_triangular(solution.factor, cross.T, lower=True).T
        mean = solution.constant + cross @ solution.solved
        return explained, (1.0 - cross @ solution.ones) * std, mean

    def error_ratio(self, codes: Indices) -> Floats:
        """(row,): factors of the error scale of the rows of a batch; −1 is an unknown one."""
        return self._error_ratios[np.maximum(codes, -1)]

    @cached_property
    def _error_ratios(self) -> Floats:
        """(batch + 1,): those of all batches and, last, of an unknown one."""
        counts = self.held_out(self.known_batches).sum_shares(1.0, len(self.names))
        of_unknown = ((self.noise_ratio, 1.0), (counts, 0.0), (self.common_rows, self._new))
        variance = self._of_new_rows(*(np.append(*values) for values in of_unknown))
        return np.sqrt(variance)

    @property
    def _new(self) -> float:
        """Rows that the common variance of the errors counts for in a batch that is added.

        However alike batches are, a further one may have other errors, if they are few.
        """
        first = self.common_rows[0]
        return float(min(first, max(_LEAST_COMMON_ROWS, len(self.common_rows) / 2.0)))

    @staticmethod
    def _of_new_rows(ratio: Floats, counts: Floats, common_rows: Floats) -> Floats:
        """Variances of the errors of new rows, where those of `counts` rows are estimates.

        The quantiles of their t distribution are close to those of a normal one of this variance.
        """
        return ratio / (1.0 - LOST_FREEDOM / (common_rows + counts))

    def widening(self, std_error: Floats, ratio: Floats) -> Floats:
        """Factors of the error scale, by the error of a deviation and by the noise of a batch."""
        return np.hypot(ratio, std_error / self.within) if self.within else ratio

    def without_own(self) -> tuple[Floats, Floats, Floats]:
        """(known row,): deviations by the other rows of the batch, and their standard errors.

        And factors of the error scale by the others.
        """
        mean, std = self.of_rows(self.features, self.codes)
        used = self.weight > 0
        mean[used], std[used] = self.center, self.deviation.between**0.5  # of rows without others
        held_out = self.held_out(self.known_batches)
        mean[held_out.rows] = self.residual[held_out.rows] - held_out.errors
        of_deviation = held_out.variance * (1.0 - held_out.share) * self.noise_ratio[held_out.codes]
        std[held_out.rows] = np.sqrt(of_deviation)
        codes, n = held_out.codes, len(self.names)
        squares = held_out.squares
        counts = held_out.sum_shares(1.0, n)[codes] - held_out.share
        sums = held_out.sum_shares(squares, n)[codes] - held_out.share * squares
        variance = self.noise_ratio[self.codes]
        common = self.common_rows[codes]
        ratio_of_others = noise_ratio(sums, counts, common)
        variance[held_out.rows] = self._of_new_rows(ratio_of_others, counts, common)
        return mean, std, np.sqrt(variance)

    def rounded(self, y: Floats) -> Floats:
        """Y far below the errors, so that models do not depend on the size of deviations."""
        unit = 10.0 ** np.floor(np.log10(max(self.within, 1e-290)) - _DIGITS)
        return np.round(y / unit) * unit

    def shifted(self, shift: float) -> BatchEffects:
        """With a constant added to all deviations."""
        return replace(self, residual=self.residual + shift, center=self.center + shift)

    # --- further rows and results -------------------------------------------------------------

    def add(
        self, labels: list[str], features: Floats, residual: Floats, variance: Floats
    ) -> tuple[BatchEffects, Indices]:
        """With further known rows, and the codes of their batches (row,).

        `variance` (row,) is that of the errors of the residuals.
        """
        names = [*self.names, *(name for name in dict.fromkeys(labels) if name not in self.names)]
        number = {name: code for code, name in enumerate(names)}
        codes = np.array([number[label] for label in labels], dtype=np.intp)
        n_new = len(names) - len(self.names)
        ratio = np.append(self.noise_ratio, np.ones(n_new))
        weight = max(self.deviation.noise, 1e-280) / variance * ratio[codes]
        added = replace(
            self,
            names=names,
            features=np.concatenate([self.features, features]),
            codes=np.append(self.codes, codes),
            residual=np.append(self.residual, residual),
            weight=np.append(self.weight, weight),
            noise_ratio=ratio,
            common_rows=np.append(self.common_rows, np.full(n_new, self._new)),
        )
        return added.with_noise_ratios(np.unique(codes)), codes

    def without_last(self, n_rows: int) -> BatchEffects:
        """Without the known rows that were added last."""
        end = len(self.codes) - n_rows
        n_batches = int(self.codes[:end].max()) + 1
        removed = np.unique(self.codes[end:])
        names = ("features", "codes", "residual", "weight")
        of_batches = ("names", "noise_ratio", "common_rows")
        ends = dict.fromkeys(names, end) | dict.fromkeys(of_batches, n_batches)
        first = replace(self, **{name: vars(self)[name][:stop] for name, stop in ends.items()})
        return first.with_noise_ratios(removed[removed < n_batches])


@dataclass(frozen=True, eq=False)
class Deviation:
    """The covariance of the deviations of rows of the same batch.

    It is that of a constant, of a linear function of the scaled features, and of a smooth one
    (Matérn 5/2). Deviations of different batches are independent.
    """

    center: Floats  # (encoded feature,)
    length_scales: Floats  # (encoded feature,), infinite where a feature is constant
    slope: float = 0.0  # variances of the linear and of the smooth function
    smooth: float = 0.0
    stretch: float = 1.0  # factor of the length scales of the smooth function
    noise: float = 1.0  # variance of the error of a row of weight 1
    between: float = 0.0  # variance of the constants

    @property
    def is_constant(self) -> bool:
        """Whether deviations are constants."""
        return self.slope == 0.0 and self.smooth == 0.0

    @property
    def differs(self) -> bool:
        """Whether deviations of batches are not all the same."""
        return self.between > 0.0 or not self.is_constant

    def scaled(self, features: Floats) -> Floats:
        """(row, encoded feature): features in length scales; a missing value is the mean."""
        return np.nan_to_num((features - self.center) / self.length_scales)

    def covariance(self, first: Floats, second: Floats) -> Floats:
        """(first, second): covariances at scaled rows, without that of the constants.

        >>> deviation = Deviation(np.zeros(1), np.ones(1), slope=2.0)
        >>> deviation.covariance(np.array([[1.0]]), np.array([[3.0], [0.0]]))
        array([[6., 0.]])
        """
        linear = self.slope * (first @ second.T) / first.shape[1]
        squares = cdist(first, second, "sqeuclidean") / self.stretch**2
        return linear + self.smooth * KERNELS["matern"](squares)[0]

    def variance(self, scaled: Floats) -> Floats:
        """(row,): variances at scaled rows, without that of the constants."""
        return self.slope * np.sum(scaled**2, axis=1) / scaled.shape[1] + self.smooth


def noise_ratio(
    sums: Floats | Indices, counts: Floats | Indices, common_rows: Floats | float
) -> Floats:
    """Variances of the errors of batches with these sums of scaled squares, in common ones.

    The common variance counts less in a batch that is clearly noisier than others.

    >>> noise_ratio(np.array([15.0, 250.0]), np.array([10.0, 10.0]), 10.0).round(2)
    array([ 1.25, 22.67])
    """
    excess = np.log(np.maximum(sums / np.maximum(counts, 1e-9), 1.0))
    score = excess**2 / (2.0 / np.maximum(counts, 1e-9) + 2.0 / common_rows)
    common_rows = common_rows / np.maximum(1.0, (_TAIL_OF_RATIOS + score) / (_TAIL_OF_RATIOS + 1.0))
    return 1.0 + (sums - counts) / (common_rows + counts)


def log_density(squares: Floats, variances: Floats) -> Floats:
    """(row,): logarithms of the densities of errors with these squares, up to a constant."""
    return -0.5 * (squares / variances + np.log(variances))
