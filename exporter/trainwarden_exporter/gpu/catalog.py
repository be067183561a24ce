"""The metrics of this room: rows of the catalogue."""

from trainwarden_exporter.metric import Entry

GPU_ROWS: tuple[Entry, ...] = ()
