"""Difference models F(a, b): scikit-learn regressors on pair features, trees, networks."""
