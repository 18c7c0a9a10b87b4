"""Estimators: twin regressors and their neural, semi-supervised and plain relatives."""
