"""The public schema: columns, maps, roles, and how cells are encoded as features."""
