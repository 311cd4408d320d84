"""Names that the site's side and the server's side must agree on."""

COURIER = "ringfence.deployment.nvflare.courier.Courier"
RELAY = "ringfence.deployment.nvflare.controller.Relay"
VALIDATOR = "ringfence.deployment.nvflare.site.OnlyOurJob"
DOORKEEPER = "ringfence.deployment.nvflare.site.Doorkeeper"

TASK = "round"
CONTENT = "content"
SECONDS = "seconds"

POINTER = "ringfence.toml"
"""In a kit's `local` folder: where the silo's `courier.toml` is."""

ORGANISATION = "ringfence"
"""In every certificate of the engine's, and in its project."""
