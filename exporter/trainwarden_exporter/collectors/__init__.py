"""One module per collector; each yields prometheus_client metric families."""
