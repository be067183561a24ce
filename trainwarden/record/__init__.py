"""The run record: where it is, what its files hold, how they are written, and which evidence counts for an attempt."""
