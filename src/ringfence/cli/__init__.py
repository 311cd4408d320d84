"""The command line: one thin file per command group. Each command parses, calls one function, prints."""
