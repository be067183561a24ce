"""The packs that records name: read for their users alone, in threads of their own, within bounds."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.errors import UsageError
from trainwarden.record.document import read_open
from trainwarden.signals.pack import PackError, PackFiles, is_shipped, read_pack, shipped_packs
from trainwarden.signals.tailing.log import Searcher
from trainwarden.signals.tailing.opening import OwnedRoots, Refused, open_log
from trainwarden_exporter.core.memory import release_free_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

# Of all users; beyond it each may have a share of as many. A pack of the largest size takes 9 MiB.
MAX_PACKS, MAX_PACKS_OF_USER = 64, 8
# With the files of its user that it extends: some 1500 signals, of which fewer are exported.
MAX_PACK_BYTES = 64 * 2**10
# What a file system that never answers leaves behind.
MAX_LOADING = 16
# A user whose packs take long takes a twentieth of a core with them.
PAUSE_FACTOR = 20.0
# So long a round waits for packs that it names first, a second each where the processor is busy.
WAIT_SECONDS = 5.0
RETRY_SECONDS = 30.0

# A path, as a record names it, and the uid of the record's user; None where it is not known.
PackKey = tuple[int | None, str]


class OwnedPackFiles(PackFiles):
    """Shipped packs, and plain files inside some folders that are one user's or open to everybody, within bounds.

    Args:
        roots: the folders, and the user.
        limit: bytes of these files together.
    """

    def __init__(self, roots: Sequence[str], limit: int = MAX_PACK_BYTES) -> None:
        self._roots = roots
        self._left = limit

    def is_there(self, path: Path) -> bool:
        """Return whether it can be read."""
        if is_shipped(path):
            return super().is_there(path)
        try:
            os.close(self._open(path))
        except (OSError, ValueError, Refused):
            return False
        return True

    def read(self, path: Path, limit: int) -> bytes:
        """Return the content of a file; raise `OSError` if it is none of the user's, or one too many."""
        if is_shipped(path):
            return super().read(path, limit)
        try:
            descriptor = self._open(path)
        except Refused as error:
            raise PackError(str(error)) from error
        try:
            data = read_open(descriptor, os.fstat(descriptor).st_size, self._left + 1)
        finally:
            os.close(descriptor)
        if len(data) > self._left:
            raise PackError(f"{path}: more than {MAX_PACK_BYTES} bytes with what it extends, expected a smaller pack")
        self._left -= len(data)
        return data

    def _open(self, path: Path) -> int:
        """Open a file; raise `Refused` or `OSError`."""
        try:
            return open_log(str(path), self._roots)
        except Refused as error:
            if error.reason != "owner":
                raise
            refused = error
        # A pack that some user has written for all.
        descriptor = open_log(str(path), tuple(self._roots))
        if _is_open_to_all(descriptor):
            return descriptor
        os.close(descriptor)
        raise refused


def _is_open_to_all(descriptor: int) -> bool:
    """Return whether every user may read an open file, and enter all folders above it."""
    place = Path(f"/proc/self/fd/{descriptor}").readlink()
    try:
        folders = [parent.stat().st_mode for parent in place.parents]
    except OSError:
        return False
    return bool(os.fstat(descriptor).st_mode & stat.S_IROTH) and all(mode & stat.S_IXOTH for mode in folders)


class UsersPacks:
    """Loads each pack once, while a run names it: of one user one at a time.

    A pack takes seconds to compile, and its file system may never answer; neither delays the runs of others.

    Args:
        roots: folders in which packs may lie.
        load: returns what a pack becomes; may take long, and may raise.
        clock: monotonic, seconds.
    """

    def __init__(
        self,
        roots: Sequence[str],
        load: Callable[[PackKey, Sequence[str]], Searcher] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._roots = roots
        self._load = load or load_users_pack
        self._clock = clock
        self._loaded: dict[PackKey, Searcher | _Failure] = {}
        self._loading: dict[int | None, _Loading] = {}  # by user
        self._not_before: defaultdict[int | None, float] = defaultdict(float)
        self._wait_until = 0.0

    @property
    def searchers(self) -> tuple[Searcher, ...]:
        """Those that were loaded."""
        return tuple(each for each in self._loaded.values() if isinstance(each, Searcher))

    def begin_round(self, wanted: Collection[PackKey]) -> None:
        """Forget all but these packs; in this round `get` waits for `WAIT_SECONDS` at most, of all together."""
        self._loaded = {key: each for key, each in self._loaded.items() if key in wanted}
        users = {user for user, _ in wanted}
        for user in self._not_before.keys() - users - self._loading.keys():
            if self._not_before[user] <= self._clock():
                del self._not_before[user]
        self._wait_until = self._clock() + WAIT_SECONDS

    def get(self, key: PackKey) -> Searcher | None:
        """Return what a pack became; None while that is not known.

        Raises:
            PackError: it cannot be used; it is tried again later.
        """
        self._take()
        known = self._loaded.get(key)
        if (known is None or (isinstance(known, _Failure) and self._clock() >= known.until)) and self._begin(key):
            self._loading[key[0]].done.wait(max(0.0, self._wait_until - self._clock()))
            self._take()
            known = self._loaded.get(key)
        if isinstance(known, _Failure):
            raise PackError(known.why)
        return known

    def _begin(self, key: PackKey) -> bool:
        """Begin to load; return False if that has to wait, or there are too many."""
        user = key[0]
        if user in self._loading or len(self._loading) >= MAX_LOADING or self._clock() < self._not_before[user]:
            return False
        own = Counter(owner for (owner, _), each in self._loaded.items() if isinstance(each, Searcher))
        share = MAX_PACKS // max(1, len(own.keys() | {user}))
        if own[user] >= MAX_PACKS_OF_USER or (own.total() >= MAX_PACKS and own[user] >= share):
            self._fail(key, f"{key[1]!r}: there are {own[user]} packs of this user in use already")
            return False
        self._loading[user] = _Loading(key, lambda: self._load(key, self._roots))
        return True

    def _take(self) -> None:
        """Take what was loaded meanwhile."""
        for user, loading in list(self._loading.items()):
            if loading.done.is_set():
                del self._loading[user]
                self._not_before[user] = self._clock() + PAUSE_FACTOR * loading.seconds
                if loading.result is not None:
                    self._loaded[loading.key] = loading.result
                else:
                    self._fail(loading.key, loading.error)

    def _fail(self, key: PackKey, why: str) -> None:
        self._loaded[key] = _Failure(why, self._clock() + RETRY_SECONDS)


class _Failure:
    """Why a pack cannot be used, and until when it is not tried again."""

    def __init__(self, why: str, until: float) -> None:
        self.why = why
        self.until = until


class _Loading:
    """One call, in a thread of its own that may hang for ever."""

    def __init__(self, key: PackKey, load: Callable[[], Searcher]) -> None:
        self.key = key
        self.result: Searcher | None = None
        self.error = ""
        self.seconds = 0.0
        self.done = threading.Event()
        threading.Thread(target=self._run, args=(load,), name="pack", daemon=True).start()

    def _run(self, load: Callable[[], Searcher]) -> None:
        began = time.monotonic()
        try:
            self.result = load()
        except UsageError as error:
            self.error = str(error)
        except Exception as error:  # noqa: BLE001  # whatever a stranger's pack causes is about this pack
            self.error = f"{self.key[1]!r}: {type(error).__name__}: {error}"
        finally:
            self.seconds = time.monotonic() - began
            self.done.set()


def load_users_pack(key: PackKey, roots: Sequence[str]) -> Searcher:
    """Return the pack of a user, compiled; raise `PackError` if it cannot be used."""
    user, path = key
    if user is None or not path.startswith("/"):
        of = "none of a record in S3" if user is None else "no absolute path"
        raise PackError(f"{path!r} is none of {', '.join(shipped_packs())}, and {of}")
    searcher = Searcher(read_pack(path, OwnedPackFiles(OwnedRoots(roots, user))))
    # Compiling takes several MiB more than what is kept, which the allocator would never return.
    release_free_memory()
    return searcher
