"""Signals: patterns of log lines, what they mean, and which match was the cause of a failure."""
