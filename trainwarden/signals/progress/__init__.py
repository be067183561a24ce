"""How far a run is, read from what it prints: step, loss, throughput, in the formats of many trainers."""

from trainwarden.signals.progress.model import LogProgress
from trainwarden.signals.progress.reader import ProgressReader

__all__ = ["LogProgress", "ProgressReader"]
