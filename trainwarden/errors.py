"""The error for what a user wrote: a flag or a configuration file."""


class UsageError(Exception):
    """A flag or a configuration file is wrong; one line that names the place, the value and what was expected."""
