"""Following logs as they grow, through all that happens to files."""
