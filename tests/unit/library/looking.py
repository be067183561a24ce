"""The readers of the record as tests use them: a missing part fails the test."""

from collections.abc import Callable
from typing import Any

from trainwarden import classify
from trainwarden.record import metadata, ownership, progress, rank, sentinels, snapshot

Reader = Callable[..., Any]

read_metadata: Reader = metadata.read_metadata
read_progress: Reader = progress.read_progress
read_rank: Reader = rank.read_rank
read_snapshot: Reader = snapshot.read_snapshot
read_sentinel: Reader = sentinels.read_sentinel
current_error: Reader = sentinels.current_error
current_completion: Reader = sentinels.current_completion
announced_restart: Reader = sentinels.announced_restart
classify_exit: Reader = classify.classify_exit
owner_of: Reader = ownership.owner_of
