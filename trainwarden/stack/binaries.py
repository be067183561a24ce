"""Finds Prometheus and Alertmanager on this machine, or unpacks them into a folder of the project."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.clients.process import ProcessError, run
from trainwarden.stack.debian import PackagesUnavailable, is_unpacked, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MINIMUM = {"prometheus": (2, 42), "alertmanager": (0, 25)}

# The name of each program, upstream and in Debian.
_NAMES = {
    "prometheus": ("prometheus",),
    "promtool": ("promtool",),
    "alertmanager": ("alertmanager", "prometheus-alertmanager"),
    "amtool": ("amtool",),
}
# Images of the same versions that docker-compose.yml runs.
_IMAGES = {
    "prom/prometheus:v3.5.0": ("prometheus", "promtool"),
    "prom/alertmanager:v0.28.1": ("alertmanager", "amtool"),
}
# Debian compiles the path of Alertmanager's templates into the program. In a copy it is overwritten by a path of the
# same length through a file descriptor, which a shell script opens before it executes the program.
_TEMPLATES = b"/usr/share/prometheus/alertmanager"
_DESCRIPTOR = 9
_RELOCATED = f"/proc/self/fd/{_DESCRIPTOR}".encode().ljust(len(_TEMPLATES), b"/")


class ToolsMissing(Exception):
    """Prometheus or Alertmanager cannot be found or unpacked; the message lists what was tried."""


@dataclass(frozen=True)
class Tools:
    """Paths of the four programs, and where they came from."""

    prometheus: Path
    promtool: Path
    alertmanager: Path
    amtool: Path
    source: str

    def versions(self) -> str:
        """One line for the terminal, e.g. `Prometheus 2.42.0, Alertmanager 0.25.0`."""
        numbers = [".".join(map(str, _version(path) or ("?",))) for path in (self.prometheus, self.alertmanager)]
        return f"Prometheus {numbers[0]}, Alertmanager {numbers[1]}"


def find_tools(into: Path | None = None, *, report: Callable[[str], None] | None = None) -> Tools:
    """Find the four programs: in $TRAINWARDEN_TOOLS_DIR, on PATH, in packages unpacked into `into`, or in Docker.

    `into` is written only if nothing is found before; the default is a checkout's own `.tools`. `report` is called
    with one line before each slow step. Raises ToolsMissing.
    """
    named = os.environ.get("TRAINWARDEN_TOOLS_DIR")
    if named:
        tools = _in_folder(Path(named), f"TRAINWARDEN_TOOLS_DIR={named}")
        if tools is None and into is None:
            into = Path(named)
    else:
        tools = _on_path()
    if tools is not None:
        return tools
    folder = into or default_folder()
    tools = _in_folder(folder, str(folder))
    if tools is not None:
        return tools
    tried: list[str] = []
    for way, fetch in (("packages", _from_packages), ("Docker", _from_docker)):
        if report:
            report(f"getting Prometheus and Alertmanager from {way} into {folder}")
        try:
            fetch(folder)
        except (PackagesUnavailable, OSError) as error:
            tried.append(f"{way}: {error}")
            continue
        tools = _in_folder(folder, way)
        if tools is not None:
            return tools
        tried.append(f"{way}: programs missing or older than {_minimum_text()}")
    message = f"Prometheus and Alertmanager (from {_minimum_text()}) are neither on PATH nor to be had: " + "; ".join(
        tried
    )
    raise ToolsMissing(message)


def default_folder() -> Path:
    """Return `.tools` of a checkout, else a folder in the user's cache."""
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".tools"
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "trainwarden" / "tools"


def fetch_suite(suite: str, into: Path) -> Tools:
    """Unpack the programs of another Debian suite, for compatibility tests.

    Raises:
        PackagesUnavailable, ToolsMissing: they cannot be had.
    """
    names = ["prometheus", "prometheus-alertmanager"]
    try:
        unpack([*names, "promtool"], into, suite=suite, finish=_relocate_all)
    except PackagesUnavailable:  # older suites ship promtool inside the package of Prometheus
        unpack(names, into, suite=suite, finish=_relocate_all)
    tools = _in_folder(into, f"Debian {suite}")
    if tools is None:
        message = f"the packages of Debian {suite} hold no Prometheus from {_minimum_text()}"
        raise ToolsMissing(message)
    return tools


def _from_packages(folder: Path) -> None:
    unpack(["prometheus", "prometheus-alertmanager"], folder, dependencies=False, finish=_relocate_all)


def _relocate_all(root: Path) -> None:
    for name in (*_NAMES["alertmanager"], "amtool"):
        program = root / "usr/bin" / name
        if program.is_file():
            _relocate(program, root)


def _from_docker(folder: Path) -> None:
    """Copy the programs out of the images: they are linked statically."""
    docker = shutil.which("docker")
    if docker is None:
        message = "docker is not on PATH"
        raise PackagesUnavailable(message)
    target = folder / "docker"
    target.mkdir(parents=True, exist_ok=True)
    for image, programs in _IMAGES.items():
        container = _docker(docker, "create", image)
        try:
            for program in programs:
                _docker(docker, "cp", f"{container}:/bin/{program}", str(target / program))
        finally:
            _docker(docker, "rm", container)


def _docker(docker: str, *arguments: str) -> str:
    try:
        done = run([docker, *arguments], 600, cwd=".")
    except ProcessError as error:
        message = f"docker {arguments[0]}: {error}"
        raise PackagesUnavailable(message) from None
    if done.status != 0:
        lines = done.errors.decode("utf-8", "replace").strip().splitlines()
        message = f"docker {arguments[0]}: {lines[-1] if lines else 'failed'}"
        raise PackagesUnavailable(message)
    return done.output.decode("utf-8", "replace").strip()


def _on_path() -> Tools | None:
    found = {
        tool: next((path for name in names if (path := shutil.which(name))), None) for tool, names in _NAMES.items()
    }
    return _checked({tool: Path(path) for tool, path in found.items() if path}, "PATH")


def _in_folder(folder: Path, source: str) -> Tools | None:
    places = [folder, folder / "docker"]
    if is_unpacked("prometheus-alertmanager", folder):
        places.append(folder / "root/usr/bin")
    found = {
        tool: path
        for tool, names in _NAMES.items()
        for place in reversed(places)
        for name in names
        if os.access(path := (place / name).absolute(), os.X_OK)
    }
    return _checked(found, source)


def _checked(found: dict[str, Path], source: str) -> Tools | None:
    if found.keys() != _NAMES.keys():
        return None
    for tool, minimum in MINIMUM.items():
        version = _version(found[tool])
        if version is None or version < minimum:
            return None
    return Tools(found["prometheus"], found["promtool"], found["alertmanager"], found["amtool"], source)


def _version(program: Path) -> tuple[int, ...] | None:
    try:
        done = run([str(program), "--version"], 30, cwd=".")
    except ProcessError:
        return None
    match = re.search(rb"version (\d+)\.(\d+)\.(\d+)", done.output + done.errors)
    return tuple(map(int, match.groups())) if match else None


def _minimum_text() -> str:
    return " and ".join(f"{tool} {'.'.join(map(str, number))}" for tool, number in MINIMUM.items())


def _relocate(program: Path, root: Path) -> None:
    """Make `program`, unpacked below `root`, read its templates below `root` instead of /."""
    data = program.read_bytes()
    shared = root / _TEMPLATES.decode().lstrip("/")
    if _TEMPLATES not in data or not shared.is_dir():
        return
    moved = program.with_name(f"{program.name}.relocated")
    moved.write_bytes(data.replace(_TEMPLATES, _RELOCATED))
    _make_executable(moved)
    script = f'#!/bin/sh\nexec {_DESCRIPTOR}<{shlex.quote(str(shared))}\nexec {shlex.quote(str(moved))} "$@"\n'
    program.unlink()
    program.write_text(script, encoding="utf-8")
    _make_executable(program)


def _make_executable(path: Path) -> None:
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print where the programs are; unpack them first where needed."""
    parser = argparse.ArgumentParser(prog="python -m trainwarden.stack.binaries", description=main.__doc__)
    parser.add_argument("--into", type=Path, help="folder to unpack into where the machine has none")
    parser.add_argument("--suite", help="take them from this Debian suite, whatever the machine has")
    options = parser.parse_args(arguments)
    try:
        if options.suite:
            tools = fetch_suite(options.suite, options.into or default_folder() / options.suite)
        else:
            tools = find_tools(options.into, report=lambda line: print(line, file=sys.stderr))
    except (ToolsMissing, PackagesUnavailable) as error:
        print(f"trainwarden: {error}", file=sys.stderr)
        return 2
    print(f"{tools.versions()} ({tools.source})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
