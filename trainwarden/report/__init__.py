"""One page about one run: `trainwarden report`, and the end of `trainwarden up`."""
