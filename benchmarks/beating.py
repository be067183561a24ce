"""One rank that trains in another process, and counts what it asks of the file system that its record is on."""

import json
import os
import sys
import time
from collections import Counter
from typing import Any

import trainwarden

# Events of Python's audit hooks, and calls that have none.
_EVENTS = {
    "os.rename": "rename",
    "os.link": "rename",
    "os.remove": "remove",
    "os.mkdir": "mkdir",
    "os.listdir": "list",
    "os.scandir": "list",
}
_CALLS = ("stat", "lstat", "access", "statvfs")


class Operations:
    """Counts the operations of this process on paths below a folder, by what a metadata server does for them."""

    def __init__(self, folder: str) -> None:
        self.counts: Counter[str] = Counter()
        self._folder = folder
        sys.addaudithook(self._on_event)
        for name in _CALLS:
            setattr(os, name, self._counting(getattr(os, name)))

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        kind = _EVENTS.get(event)
        if event == "open" and self._is_below(arguments[0]):
            self.counts["create" if arguments[2] & os.O_CREAT else "open"] += 1
        elif kind and self._is_below(arguments[0]):
            self.counts[kind] += 1

    def _counting(self, call: Any) -> Any:
        def counting(path: Any, *arguments: Any, **named: Any) -> Any:
            if self._is_below(path):
                self.counts["stat"] += 1
            return call(path, *arguments, **named)

        return counting

    def _is_below(self, path: object) -> bool:
        return isinstance(path, (str, os.PathLike)) and str(path).startswith(self._folder)


def main() -> None:
    """Count for some seconds, between the start of all ranks and the end of any; the counts are printed as JSON."""
    runs, seconds = sys.argv[1], float(sys.argv[2])
    with trainwarden.run("r", dir=runs) as run:
        print("trains", flush=True)
        sys.stdin.readline()
        operations = Operations(runs)
        end = time.monotonic() + seconds
        step = 0
        while time.monotonic() < end:
            step += 1
            run.step(step, loss=1.0)
            time.sleep(0.1)
        print(json.dumps(operations.counts), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
