"""Read progress from a stream of bytes, however it is cut into chunks."""

import re
from collections.abc import Mapping
from typing import Any

from trainwarden.signals.progress.model import LogProgress, Reading
from trainwarden.signals.progress.picture import Picture
from trainwarden.signals.progress.record import read_record

CHUNK = 1024 * 1024
# A record is read this far, as the signals do.
RECORD_LIMIT = 64 * 1024
# Of a chunk, searched for texts that the log has not used so far.
WINDOW = 32 * 1024
# Until here, and then in every so many chunks, every text is searched everywhere.
LEARNING_BYTES = 1024 * 1024
RELEARN_CHUNKS = 32
# Bounds of the work on one text of a chunk, and on the whole chunk.
HITS, RECORDS, SHAPES = 128, 12, 24

# Every record with progress contains one of these; in most trainers' output, one of the first.
_ALWAYS = (b"loss", b"step", b"iter", b"it/s")
_TEXTS = (
    *_ALWAYS, b"s/it", b"Step", b"Loss", b"Iter", b"STEP", b"LOSS", b"ITER", b"pdate", b"batch=", b"Epoch", b"lr",
    b"SamplesPerSec", b"_norm", b"per_sec", b"ok/s", b" \xe2\x80\xa2 ",
)  # fmt: skip
_NUMBER_NEAR = re.compile(rb"[^\r\n]{0,64}?(?:\d|[nN]a[nN]|inf)")
_BARS = frozenset((b"it/s", b"s/it"))
_BAR_TOTAL = re.compile(rb"\d/(\d{1,15}) ?\[")
_SIGNS = bytes(byte for byte in range(256) if not (65 <= byte <= 90 or 97 <= byte <= 122))


class ProgressReader:
    """Follows one log; a record ends at a line feed or a carriage return.

    Of records that differ only in their numbers the last one of each chunk is read, so the cost hardly depends on how
    much the run prints, and a long log is read fastest in pieces of `CHUNK` bytes. `LogProgress.high_water` is
    therefore never too high, and too low only by a peak that rose and fell between two reads of the log, or within one
    chunk.
    """

    def __init__(self) -> None:
        self._picture = Picture()
        self._known = set(_ALWAYS)
        self._offset = 0  # of the tail
        self._chunks = 0
        self._tail = b""
        self._skipping = False

    def feed(self, data: bytes) -> None:
        """Read the next bytes of the log."""
        for start in range(0, len(data), CHUNK):
            self._feed(data[start : start + CHUNK] if len(data) > CHUNK else data)

    def finish(self) -> None:
        """Read the last record, which has no line end. The log may continue with a new record."""
        self._read(self._tail, len(self._tail))
        self._pass(len(self._tail))
        self._tail, self._skipping = b"", False

    def progress(self) -> LogProgress:
        """Return the progress by the log so far."""
        return self._picture.progress()

    def state(self) -> dict[str, Any]:
        """Return where to continue after a restart, as JSON: `restore` it, and feed from its `offset`."""
        return {
            "offset": self._offset,
            "chunks": self._chunks,
            "skipping": self._skipping,
            "known": sorted(text.decode() for text in self._known),
            "picture": self._picture.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state()` returned; the next byte fed must be the one at its `offset`."""
        self._offset, self._chunks = int(state["offset"]), int(state["chunks"])
        self._skipping, self._tail = bool(state["skipping"]), b""
        self._known = {text.encode() for text in state["known"]}.intersection(_TEXTS)
        self._picture.restore(state["picture"])

    def _pass(self, length: int) -> None:
        self._offset += length
        self._tail = b""

    def _feed(self, data: bytes) -> None:
        if self._skipping:
            ends = [end for end in (data.find(b"\n"), data.find(b"\r")) if end >= 0]
            if not ends:
                return self._pass(len(data))
            self._pass(min(ends) + 1)
            self._skipping = False
            data = data[min(ends) + 1 :]
        chunk = self._tail + data if self._tail else data
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        self._read(chunk, end)
        self._pass(end)
        self._tail = chunk[end:]
        if len(self._tail) > RECORD_LIMIT:
            self._read(self._tail, len(self._tail))
            self._pass(len(self._tail))
            self._skipping = True
        return None

    def _read(self, chunk: bytes, end: int) -> None:
        """Find the last record of each shape in the complete records of a chunk, and add them."""
        if not end:
            return
        everywhere = end <= WINDOW or self._offset < LEARNING_BYTES or self._chunks % RELEARN_CHUNKS == 0
        self._chunks += 1
        search = _Search(chunk)
        for text in _TEXTS:
            low = 0 if everywhere or text in self._known else end - WINDOW
            if search.last_records(text, low, end):
                self._known.add(text)
        for start, reading in sorted(search.found.items()):
            self._picture.add(reading, self._offset + start)


class _Search:
    """The last record of each shape in one chunk; two records have the same shape if their letters are the same."""

    def __init__(self, chunk: bytes) -> None:
        self._chunk = chunk
        self._starts: set[int] = set()
        self._shapes: set[tuple[bytes, bytes]] = set()
        self.found: dict[int, Reading] = {}

    def last_records(self, text: bytes, low: int, high: int) -> bool:
        """Read records with this text, backwards; return whether one has values."""
        chunk, records, useful = self._chunk, 0, False
        for _ in range(HITS):
            at = chunk.rfind(text, low, high)
            if at < 0:
                break
            high = at
            if text not in _BARS and not _NUMBER_NEAR.match(chunk, at):
                continue
            start, end = _bounds(chunk, at)
            if end < 0:
                continue  # beyond what is read of a record
            high = start
            records += 1
            useful = self._take(start, end, at + len(text) if text in _BARS else 0) or useful
            if records >= RECORDS or len(self._shapes) >= SHAPES:
                break
        return useful

    def _take(self, start: int, end: int, bar: int) -> bool:
        """Read a record if none of its shape was read, and return whether it has values.

        The text after a bar does not count for its shape.
        """
        if start in self._starts:
            return False
        head = self._chunk[start : min(bar, start + 2048) if bar else min(end, start + 512)]
        total = _BAR_TOTAL.search(head) if bar else None
        shape = (head.translate(None, _SIGNS)[:96], total[1] if total else b"")
        if shape in self._shapes:
            return False
        self._starts.add(start)
        self._shapes.add(shape)
        reading = read_record(self._chunk[start:end])
        if reading is None:
            return False
        self.found[start] = reading
        return True


def _bounds(chunk: bytes, at: int) -> tuple[int, int]:
    """Return start and end of the record around a position; the end is -1 beyond the part of it that is read."""
    least = max(0, at - RECORD_LIMIT)
    start = chunk.rfind(b"\n", least, at) + 1
    start = max(start, chunk.rfind(b"\r", start or least, at) + 1)
    if start == 0 and least > 0:
        return at, -1
    limit = start + RECORD_LIMIT
    end = chunk.find(b"\n", at, limit)
    end = min(limit, len(chunk)) if end < 0 else end
    feed = chunk.find(b"\r", at, end)
    return start, feed if feed >= 0 else end
