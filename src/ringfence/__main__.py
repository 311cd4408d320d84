"""`python -m ringfence` is the `ringfence` command."""

from ringfence.cli.main import run

run()
