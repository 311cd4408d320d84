"""Names that the site's side and the server's side must agree on."""

COURIER = "ringfence.deployment.nvflare.courier.Courier"
RELAY = "ringfence.deployment.nvflare.controller.Relay"

TASK = "round"
CONTENT = "content"
SECONDS = "seconds"

POINTER = "ringfence.toml"
"""In a kit's `local` folder: where the silo's `courier.toml` is."""
