"""`trainwarden scan`: what broke a run, read from its logs after the fact."""
