"""Parameters of networks, drawn by one compiled program instead of many small ones."""

import jax

from twinned.models.neural import trainable_network

initial_parameters = jax.jit(trainable_network.initial_parameters, static_argnames="shape")
