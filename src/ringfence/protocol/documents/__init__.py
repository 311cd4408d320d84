"""Documents and messages that parties exchange: requests, answers, ledger heads, certificates, keys."""
