"""What the logs of runs tell: which are followed, what was found in them, and how it is shown."""
