"""The canary of the acting path: a job that breaks on schedule and is healed as any other."""
