# SPDX-License-Identifier: Apache-2.0
"""Computes a compiled product twice, with JAX."""
import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import jax
import jax.numpy as jnp

product = jax.jit(lambda a: jnp.tanh(a @ a))
a = jnp.ones((512, 512))
print(float(product(product(a)).sum()))
