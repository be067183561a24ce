"""Checkpoints: which is the newest, and can it be resumed from? The page docs/checkpoints.md says what proves it."""

from trainwarden.checkpoint.choose import choose
from trainwarden.checkpoint.find import Found, Search, find, newest, search
from trainwarden.checkpoint.size import size_of
from trainwarden.checkpoint.verdict import Verdict
from trainwarden.checkpoint.verify import verify

__all__ = ["Found", "Search", "Verdict", "choose", "find", "newest", "search", "size_of", "verify"]
