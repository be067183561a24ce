"""One client for each outside system, shared by exporter, remediator, library and stack."""
