"""Models whose local weights need not be found by a fit."""

from dataclasses import replace

from twinned import GPWeights


def with_local_power(model, power):
    """The model with local weights of the estimates with residuals; 0 stands for equal ones."""
    local_weights = GPWeights(power) if power else None
    return model.with_fitted(replace(model.fitted_, local_weights=local_weights))
