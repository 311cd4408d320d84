"""The silo that most attacks are on."""

from tests.silo.conftest import silo_folder  # noqa: F401 (a fixture)
