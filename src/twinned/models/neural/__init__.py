"""Neural difference models in JAX: network, training, ensemble, inference."""
