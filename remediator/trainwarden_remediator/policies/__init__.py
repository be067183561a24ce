"""Restart policies: the format of their files, and the files that are shipped."""
