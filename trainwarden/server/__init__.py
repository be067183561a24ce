"""The HTTP server that the services share: limits, deadlines, TLS, users and an orderly end."""
