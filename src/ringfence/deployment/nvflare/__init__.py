"""NVFlare as the engine: a courier at the site, a relay in the engine's server, and the exchange in our own process."""
