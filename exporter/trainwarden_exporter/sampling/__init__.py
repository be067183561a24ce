"""Sampling: each task in a thread of its own, drivers in a process of their own; a scrape joins encoded samples."""
