"""The pages that the exporter serves."""
