"""`trainwarden exec`: runs a command from outside, keeps its output, and records what it does not record itself."""
