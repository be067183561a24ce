"""The beat of this process's rank: left on its node, and published in one file with those of the node's other ranks."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainwarden.identity import host_name, process_lives
from trainwarden.record.folder import LIVENESS_SECONDS
from trainwarden.record.rank import HostBeats, RankBeat, host_file, rank_file, read_host
from trainwarden.record.store import RecordStore
from trainwarden.training.node_folder import NodeFolder

BEAT_SECONDS = 1.0
# How long a start and an end wait for another rank that publishes, and a new phase for others that enter it too.
_LOCK_SECONDS = 0.5
_GATHER_SECONDS = 0.3
_NEVER = float("-inf")


class RankPublisher:
    """Publishes the beats of this node's ranks, by whichever of them finds that it is time.

    No rank depends on another: one that is stopped or hangs while it publishes is not waited for. Then, and where the
    node has no folder that its ranks can share, this rank's beat goes to a file of its own.

    Args:
        store: of the record.
        key: of the attempt.
        node: the folder of the node.
        is_superseded: returns whether the record belongs to another process by now; called before each publication.
    """

    def __init__(self, store: RecordStore, key: str, node: NodeFolder, is_superseded: Callable[[], bool]) -> None:
        self._store = store
        self._key = key
        self._node = node
        self._is_superseded = is_superseded
        self._name = host_file(host_name(), node.digits)
        self._beat: RankBeat | None = None
        self._is_on_node = False
        # By the monotonic clock: of the last beat, of the last that had another phase, and of this rank's own file.
        self._written = self._changed = self._own_file = _NEVER

    @property
    def is_due(self) -> bool:
        """Whether it is time for another beat."""
        return time.monotonic() - self._written >= BEAT_SECONDS

    def write(self, beat: RankBeat) -> None:
        """Leave the beat on the node; nothing is published."""
        before, self._beat = self._beat, beat
        self._is_on_node = self._node.write(beat)
        # Taken after: another rank may have collected the beats meanwhile.
        self._written = time.monotonic()
        if before is None or (before.phase, before.status) != (beat.phase, beat.status):
            self._changed = self._written

    def publish(self) -> None:
        """Have the last beat published now: at a start and at an end.

        Raises:
            OSError: the folder of the run cannot be written.
        """
        if not self._publish_node(self._written, _LOCK_SECONDS):
            self._write_own_file()

    def publish_what_is_due(self) -> None:
        """Publish if the last publication is too long ago, or has an earlier phase of this rank.

        Raises:
            OSError: the folder of the run cannot be written.
        """
        now = time.monotonic()
        since = now - LIVENESS_SECONDS
        if self._changed <= now - _GATHER_SECONDS:
            # The other ranks have changed their phase by now, too.
            since = max(since, self._changed)
        published = self._node.published if self._is_on_node else _NEVER
        if max(published, self._own_file) >= since or self._publish_node(since):
            return
        # Another rank may be about to publish.
        if not self._is_on_node or published < now - 2 * LIVENESS_SECONDS:
            self._write_own_file()

    def _publish_node(self, since: float, wait_seconds: float = 0.0) -> bool:
        """Publish, unless another rank has collected the beats after `since`; False if that cannot be done."""
        if not self._is_on_node or self._beat is None:
            return False
        with self._node.lock(wait_seconds) as is_locked:
            if not is_locked:
                return False
            if self._node.published >= since or self._is_superseded():
                return True
            # The last rank may have removed the folder meanwhile.
            self._node.write(self._beat)
            if self._node.published == _NEVER:
                self._restore()
            moment = time.monotonic()
            beats = {**self._node.beats(), self._beat.rank: self._beat}
            ranks = tuple(beats[rank] for rank in sorted(beats))
            self._store.write(self._name, HostBeats(host=host_name(), ranks=ranks))
            if all(map(_is_over, ranks)):
                self._node.remove()
            else:
                self._node.set_published(moment)
        return True

    def _restore(self) -> None:
        """Leave on the node what was published before its folder was made anew: ranks that ended, or write seldom."""
        published, known = read_host(self._store.folder, self._name), self._node.beats()
        for beat in published.ranks if isinstance(published, HostBeats) else ():
            if beat.attempt_key == self._key and beat.rank not in known:
                self._node.write(beat)

    def _write_own_file(self) -> None:
        if self._beat is not None and not self._is_superseded():
            self._store.write(rank_file(self._beat.rank), self._beat)
            self._own_file = time.monotonic()


def _is_over(beat: RankBeat) -> bool:
    return beat.status not in (None, "running") or beat.pid is None or not process_lives(beat.pid)
