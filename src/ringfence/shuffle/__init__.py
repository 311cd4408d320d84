"""The shuffle model: counts in shares, sealed so that the server reads their total and the shuffler nothing."""
