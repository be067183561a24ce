"""The metrics of this room: rows of the catalogue."""

from trainwarden_exporter.metric import Entry

AMD_ROWS: tuple[Entry, ...] = ()
