"""Sampling: each part in a thread of its own, drivers in a process of their own; a scrape only joins what is ready."""
