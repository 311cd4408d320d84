"""How bytes get from one process to another, whatever they say: HTTP client and server, and an engine's relay."""
