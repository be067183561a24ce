"""Unpacks programs from Debian or Ubuntu packages into a folder: no root, nothing installed, no service started."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.clients.process import CannotStart, ProcessError, run

if TYPE_CHECKING:
    from collections.abc import Sequence

_APT_SECONDS = 600
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")


class PackagesUnavailable(Exception):
    """The packages could not be downloaded; the message names them and holds apt's answer."""


@dataclass(frozen=True)
class _Apt:
    """apt with its own lists, cache and, for another suite, sources; the machine's state is only read."""

    folder: Path
    suite: str | None

    def command(self, *arguments: str) -> list[str]:
        options = {
            "Dir::State::Lists": str(self.folder / "lists"),
            "Dir::Cache": str(self.folder / "cache"),
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
        }
        if self.suite is not None:
            options["Dir::Etc::SourceList"] = str(self.folder / "sources.list")
            options["Dir::Etc::SourceParts"] = "-"
        return ["apt-get", "-q", *(f"-o{key}={value}" for key, value in options.items()), *arguments]

    def run(self, *arguments: str, cwd: Path | None = None) -> str:
        variables = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        try:
            done = run(self.command(*arguments), _APT_SECONDS, cwd=cwd or ".", environment=variables)
        except CannotStart as error:
            message = f"apt-get cannot be run ({error}): is this a Debian or Ubuntu system?"
            raise PackagesUnavailable(message) from None
        except ProcessError as error:
            message = f"apt-get {arguments[0]}: {error}"
            raise PackagesUnavailable(message) from None
        output = done.output.decode("utf-8", "replace")
        if done.status != 0:
            text = done.errors.decode("utf-8", "replace") or output
            message = f"apt-get {' '.join(arguments)} failed: {' '.join(text.strip().splitlines()[-3:])}"
            raise PackagesUnavailable(message)
        return output

    def prepare(self) -> None:
        for part in ("lists/partial", "cache/archives/partial", "archives"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        if self.suite is not None:
            line = f"deb {_debian_mirror()} {self.suite} main\n"
            (self.folder / "sources.list").write_text(line, encoding="utf-8")
        self.run("update")

    def missing(self, packages: Sequence[str]) -> list[str]:
        """Return what installing `packages` would add to this machine, dependencies included."""
        plan = self.run("--simulate", "--no-install-recommends", "install", *packages)
        return [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]


def unpack(
    packages: Sequence[str],
    into: Path,
    *,
    suite: str | None = None,
    dependencies: bool = True,
    finish: Callable[[Path], None] = lambda _root: None,
) -> Path:
    """Unpack `packages`, with the dependencies this machine lacks, below `into`, and return the unpacked root.

    Unpacked packages are not downloaded again, and of several processes one does the work. `suite` names another Debian
    suite than the machine's own; its packages are then taken without dependencies. `finish` is called with the root
    before it is used. Raises PackagesUnavailable.
    """
    for package in packages:
        if not _PACKAGE.fullmatch(package):
            message = f"{package!r} is no package name"
            raise PackagesUnavailable(message)
    into = into.absolute()
    root = into / "root"
    marker = into / f"unpacked-{'+'.join(sorted(packages))}"
    with _one_at_a_time(into):
        if not marker.exists():
            _unpack(packages, into, root, suite=suite, dependencies=dependencies)
            finish(root)
            marker.touch()
    return root


def is_unpacked(package: str, into: Path) -> bool:
    """Return whether `package` is unpacked, alone or with others."""
    return any(package in marker.name.partition("-")[2].split("+") for marker in into.glob("unpacked-*"))


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unpack(packages: Sequence[str], into: Path, root: Path, *, suite: str | None, dependencies: bool) -> None:
    if shutil.which("dpkg") is None:
        message = "dpkg is not on PATH: this is no Debian or Ubuntu system"
        raise PackagesUnavailable(message)
    apt = _Apt(into / "apt", suite)
    apt.prepare()
    wanted = list(packages)
    if dependencies and suite is None:
        wanted = sorted({*packages, *apt.missing(packages)})
    archives = apt.folder / "archives"
    apt.run("download", *wanted, cwd=archives)
    for archive in sorted(archives.glob("*.deb")):
        _unpack_archive(archive, root)
    shutil.rmtree(apt.folder, ignore_errors=True)


def _unpack_archive(archive: Path, root: Path) -> None:
    try:
        done = run(["dpkg", "-x", str(archive), str(root)], _APT_SECONDS, cwd=".")
    except ProcessError as error:
        message = f"dpkg -x {archive}: {error}"
        raise PackagesUnavailable(message) from None
    if done.status != 0:
        message = f"dpkg -x {archive}: {done.message}"
        raise PackagesUnavailable(message)


def _debian_mirror() -> str:
    """Return the address of the Debian archive in this machine's apt sources."""
    try:
        listing = run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(COMPONENT)"], 60).output.decode()
    except (ProcessError, UnicodeDecodeError) as error:
        message = f"apt-get indextargets: {error}"
        raise PackagesUnavailable(message) from None
    for line in listing.splitlines():
        address, _, component = line.partition(" ")
        if component == "main" and re.search(r"/debian/?$", address):
            return address
    message = "this machine's apt sources name no Debian archive"
    raise PackagesUnavailable(message)
