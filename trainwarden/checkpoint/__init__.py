"""Checkpoints: the newest in a folder or S3 prefix, and whether it can be resumed from; see docs/checkpoints.md."""

from trainwarden.checkpoint.find import FoundCheckpoint, SearchResult, find, newest, search
from trainwarden.checkpoint.paths import size_of
from trainwarden.checkpoint.verdict import CheckpointVerdict
from trainwarden.checkpoint.verify import choose, verify

__all__ = [
    "CheckpointVerdict",
    "FoundCheckpoint",
    "SearchResult",
    "choose",
    "find",
    "newest",
    "search",
    "size_of",
    "verify",
]
