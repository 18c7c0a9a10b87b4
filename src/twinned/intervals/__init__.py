"""Prediction intervals: conformal calibration, error scale, stored calibration."""
