"""The dossier: one signed document for those who decide, of facts that were checked, and of what is missing."""
