"""What ends the exporter before it serves."""


class UsageError(Exception):
    """What the user asked for cannot be done; one line that names flag, value and what was expected."""
