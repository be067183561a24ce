"""The progress of reading a large file, on a terminal."""

import sys
import time

# Smaller files are read in a moment.
_LARGE_BYTES = 64 * 1024 * 1024
_EVERY_SECONDS = 0.2
_CELLS = 24


class Meter:
    """Rewrites one line of standard error; does nothing where that is no terminal."""

    def __init__(self, size: int | None) -> None:
        self._size = size or 0
        self._on = self._size >= _LARGE_BYTES and sys.stderr.isatty()
        self._began = self._shown = time.monotonic()
        self._is_shown = False

    def update(self, position: int) -> None:
        """Show that so many bytes of the file were read."""
        now = time.monotonic()
        if not self._on or now - self._shown < _EVERY_SECONDS:
            return
        self._shown, self._is_shown = now, True
        share = min(1.0, position / self._size)
        speed = position / (now - self._began)
        left = (self._size - position) / speed if speed else 0
        bar = "#" * int(share * _CELLS)
        sys.stderr.write(f"\r{share:4.0%} [{bar:<{_CELLS}}] {speed / 1e6:.0f} MB/s, {max(0.0, left):.0f} s left \x1b[K")
        sys.stderr.flush()

    def clear(self) -> None:
        """Erase the line."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_shown = False
