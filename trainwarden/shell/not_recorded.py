"""Why a shell command has recorded nothing."""


class NotRecorded(Exception):
    """Nothing was recorded; the message says why. It is no reason for the training to end."""


class Superseded(NotRecorded):
    """A newer attempt owns the record."""
