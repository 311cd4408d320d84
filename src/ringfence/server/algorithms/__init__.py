"""Server algorithms: init, query, step, output as pure functions over a frozen state.

They use only operations that NumPy and JAX share, so one file serves the plain loop, the compiled
simulator and a deployed server.
"""
