"""Run benchmarks and print their tables; with `--write PAGE` also put them between their markers in that page."""

import argparse
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.tables import insert, machine

# Each is a module here whose `measure()` returns its tables.
NAMES = ("steps", "memory", "starting", "ranks", "logs", "scrapes", "faults", "rules", "remediator", "plain_jobs")
# The same, on a machine that has one; run only where it is named.
ONLY_NAMED = ("gpus",)


def main() -> int:
    """Run what the arguments name, all by default; 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join((*NAMES, *ONLY_NAMED))}")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {*NAMES, *ONLY_NAMED}
    if unknown:
        parser.error(
            f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join((*NAMES, *ONLY_NAMED))}"
        )
    missed = False
    for name in arguments.names or NAMES:
        tables = import_module(f"benchmarks.{name}").measure()
        text = "\n\n".join([*(table.markdown() for table in tables), f"{machine()}."])
        print(f"## {name}\n\n{text}\n", flush=True)
        missed = missed or "**missed**" in text
        if arguments.write:
            arguments.write.write_text(insert(arguments.write.read_text(), name, text))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
