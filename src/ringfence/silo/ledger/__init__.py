"""The ledger of a data set: entries, budget, custody, certificates and backups."""
