"""Signals: what a line of a log says of the run that printed it, and what of it was the cause."""
