"""Fitted twins, and everything that is computed from them."""
