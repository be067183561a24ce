"""The node agent: what runs on this machine, as Prometheus metrics."""
