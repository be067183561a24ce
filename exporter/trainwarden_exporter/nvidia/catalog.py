"""The metrics of this room: rows of the catalogue."""

from trainwarden_exporter.metric import Entry

NVIDIA_ROWS: tuple[Entry, ...] = ()
