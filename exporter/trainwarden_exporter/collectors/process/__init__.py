"""What the exporter itself costs."""
