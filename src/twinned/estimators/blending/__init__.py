"""The parts of `AutoTwinRegressor`: members, folds, time budget, weights and what they show."""
