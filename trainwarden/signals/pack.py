"""Packs of signals: YAML files with the patterns to look for in a log.

The schema is the one that users of SLURM log monitors have; `role`, `failure`, `framework`, `literals`, `examples` and
`not` are ours. A pack may extend others (`extends`, or Hydra's `defaults`); of two signals of a name the later counts.
"""

import contextlib
import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwarden.errors import UsageError
from trainwarden.regular_file import read_regular_file
from trainwarden.signals.model import Signal
from trainwarden.signals.reading import Warn, read_signal
from trainwarden.yaml_file import MAX_BYTES, YamlValue, near_match, parse_yaml

SHIPPED = Path(__file__).parent / "packs"
DEFAULT_PACK = "all"

_SECONDS = (
    "poll_interval_seconds", "check_interval_seconds", "inactivity_threshold_seconds",
    "start_condition_interval_seconds",
)  # fmt: skip
_NOT_RUN = ("start_condition_cmd", "termination_command")
_KEPT = ("class_name", "log_path_template", "termination_string", *_NOT_RUN)
# Of the restart policies that may be in the same file.
_OF_POLICIES = ("policies", "checkpoints")
_NO_SETTINGS = ("extends", "defaults", "log_signals", "hydra", "metadata", *_OF_POLICIES)
# A pack of a thousand signals has some 15,000.
_MAX_VALUES = 50_000
_MAX_FILES = 100

_log = logging.getLogger(__name__)


class PackError(UsageError):
    """A signal file cannot be read at all; the message names the file, and the line where there is one."""


@dataclass(frozen=True)
class Pack:
    """Signals, and how the logs are to be watched. Times are in seconds; None where the pack sets none.

    Attributes:
        inactivity_threshold_seconds: how long a log may be silent.
        poll_interval_seconds, check_interval_seconds: upper bounds of how rarely to look.
        output_paths: more logs of the run, templates like `log_path_template`.
        warnings: a line for each value without effect, with its file and line.
    """

    name: str
    source: str
    signals: tuple[Signal, ...]
    class_name: str | None = None
    poll_interval_seconds: float | None = None
    check_interval_seconds: float | None = None
    inactivity_threshold_seconds: float | None = None
    log_path_template: str | None = None
    output_paths: tuple[str, ...] = ()
    termination_string: str | None = None
    warnings: tuple[str, ...] = ()


def shipped_packs() -> tuple[str, ...]:
    """Return the names of the packs that come with Trainwarden."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.yaml")))


class PackFiles:
    """The files that packs are read from: all that this process may read."""

    def is_there(self, path: Path) -> bool:
        """Return whether there is a file that may be read."""
        try:
            return path.is_file()
        except (OSError, ValueError):  # in a closed folder, a name that is too long; a NUL in it
            return False

    def read(self, path: Path, limit: int) -> bytes:
        """Return the first `limit` bytes of a file; raise `OSError` or `PackError` if it cannot be read."""
        return read_regular_file(path, limit)


def load_pack(name_or_path: str | Path = DEFAULT_PACK) -> Pack:
    """Load a shipped pack by its name, or a file; log what is wrong in it.

    Raises:
        PackError: there is none, or it is no YAML. A signal that is wrong is left out, with a warning.
    """
    pack = read_pack(name_or_path)
    for warning in pack.warnings:
        _log.warning("%s", warning)
    return pack


def read_pack(name_or_path: str | Path, files: PackFiles | None = None) -> Pack:
    """Return a pack and those that it extends, out of these files; raise as `load_pack`."""
    files = files or PackFiles()
    path = _find(str(name_or_path), None, files)
    if path is None:
        raise PackError(f"{name_or_path}: no such file, and none of the packs {', '.join(shipped_packs())}")
    return _read_shipped(path) if is_shipped(path) else _read(path, files)


def _read(path: Path, files: PackFiles) -> Pack:
    warnings: list[str] = []
    settings, signals = _PackReader(warnings.append, files).read(path, ())
    return Pack(path.stem, str(path), tuple(signals.values()), **settings, warnings=tuple(warnings))


def is_shipped(path: Path) -> bool:
    """Return whether a file came with Trainwarden: anybody may have it read. `packs/../…` lies elsewhere."""
    return path.is_relative_to(SHIPPED) and ".." not in path.parts


# Takes 0.2 s, and `scan`, the exporter and each run with a pack of its own ask for the same.
@functools.cache
def _read_shipped(path: Path) -> Pack:
    return _read(path, PackFiles())


# Packs extend each other.
@functools.cache
def _shipped_document(path: Path) -> YamlValue:
    return _document(path, PackFiles())


def _document(path: Path, files: PackFiles) -> YamlValue:
    try:
        return parse_yaml(files.read(path, MAX_BYTES + 1), path, _MAX_VALUES)
    except OSError as error:
        raise PackError(f"{path}: {error.strerror}, expected a file that this user can read") from error
    except UsageError as error:
        raise PackError(str(error)) from error


def _find(name: str, beside: Path | None, files: PackFiles) -> Path | None:
    path = Path(name)
    with contextlib.suppress(RuntimeError):  # a user who does not exist
        path = path.expanduser()
    folders = [folder for folder in (beside, None if beside else Path(), SHIPPED) if folder is not None]
    # A bare name of a shipped pack means that pack, whatever lies in the current folder.
    if beside is None and "/" not in name and not path.suffix:
        folders.reverse()
    for folder in folders:
        for candidate in (folder / path, folder / f"{path}.yaml", folder / f"{path}.yml"):
            if files.is_there(candidate):
                return candidate
    return None


class _PackReader:
    """Reads a pack and the packs that it extends."""

    def __init__(self, warn: Warn, files: PackFiles) -> None:
        self._warn = warn
        self._files = files
        self._read = 0

    def read(self, path: Path, within: tuple[Path, ...]) -> tuple[dict[str, Any], dict[str, Signal]]:
        # Packs that extend each other several times over would be read exponentially often.
        self._read += 1
        if self._read > _MAX_FILES:
            raise PackError(f"{path}: one pack too many, expected at most {_MAX_FILES} that extend each other")
        document = _shipped_document(path) if is_shipped(path) else _document(path, self._files)
        settings: dict[str, Any] = {}
        signals: dict[str, Signal] = {}
        own_read = False
        for base, name in self._bases(document):
            if name == "_self_":
                self._own(document, settings, signals)
                own_read = True
            else:
                self._base(base, name, (*within, path.resolve()), settings, signals)
        if not own_read:
            self._own(document, settings, signals)
        return settings, signals

    def _base(
        self,
        base: YamlValue,
        name: str,
        within: tuple[Path, ...],
        settings: dict[str, Any],
        signals: dict[str, Signal],
    ) -> None:
        found = _find(name, base.file.parent, self._files)
        if found is None:
            self._warn(f"{base.place}: {name}: no such file beside it, and no such pack")
        elif found.resolve() in within:
            self._warn(f"{base.place}: {name}: extends itself")
        else:
            more_settings, more_signals = self.read(found, within)
            settings.update(more_settings)
            signals.update(more_signals)

    def _bases(self, document: YamlValue) -> list[tuple[YamlValue, str]]:
        """Return the packs that a pack extends, each with its name."""
        bases = []
        if (extends := document.entries.get("extends")) is not None:
            bases += [(entry, entry.text or str(entry.data())) for entry in extends.items or (extends,)]
        if (defaults := document.entries.get("defaults")) is not None:
            named = [(entry, self._hydra_name(entry)) for entry in defaults.items]
            bases += [(entry, name) for entry, name in named if name is not None]
        return bases

    def _hydra_name(self, entry: YamlValue) -> str | None:
        """`name`, `/monitoring: name`, `name@package`; groups of other things than monitoring are no packs."""
        value = entry
        if len(entry.entries) == 1:
            group, value = next(iter(entry.entries.items()))
            group = group.split("@")[0].removeprefix("override ").removeprefix("optional ").strip("/")
            if group.split("/")[-1] == "restart":
                return None  # the remediator reads it
            if group.split("/")[-1] != "monitoring" or value.kind == "nothing":
                self._warn(f"{entry.place}: defaults: {group}: is no pack of signals and has no effect")
                return None
        if value.kind != "text":
            self._warn(f"{entry.place}: defaults: expected a name, not {value.data()!r:.60}")
            return None
        return value.text if value.text == "_self_" else value.text.split("@")[0].strip("/").removeprefix("monitoring/")

    def _own(self, document: YamlValue, settings: dict[str, Any], signals: dict[str, Signal]) -> None:
        for key, entry in document.entries.items():
            if key not in _NO_SETTINGS:
                self._setting(key, entry, settings)
        listed = document.entries.get("log_signals")
        if listed is None:
            return
        if listed.kind not in {"list", "nothing"}:
            self._warn(f"{listed.place}: log_signals: expected a list, not {listed.data()!r:.60}")
        shipped = SHIPPED in document.file.parents
        for entry in listed.items:
            enabled, name = entry.entries.get("enabled"), entry.entries.get("name")
            if enabled is not None and enabled.tag == "bool" and not enabled.boolean():
                signals.pop(name.text if name is not None else "", None)
            elif signal := read_signal(entry, shipped, self._warn):
                signals[signal.name] = signal

    def _setting(self, key: str, entry: YamlValue, settings: dict[str, Any]) -> None:
        reader = _SETTINGS.get(key)
        if reader is None:
            near = near_match(key, (*_SETTINGS, *_NO_SETTINGS))
            meant = f"; did you mean {near}?" if near else ""
            self._warn(f"{entry.place}: {key}: is not known and has no effect{meant}")
            return
        if entry.kind == "nothing":
            return
        try:
            value = reader(entry.data())
        except (ValueError, UsageError) as error:
            self._warn(f"{entry.place}: {key}: {error}")
            return
        if key in _NOT_RUN or key == "start_condition_interval_seconds":
            self._warn(f"{entry.place}: {key}: commands of a signal file are not run")
            return
        if key == "class_name" and value not in ("SlurmLogMonitor", "NullMonitor"):
            self._warn(f"{entry.place}: class_name: {value!r} is not known; its logs are watched like all")
        settings[key] = value


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ValueError(f"expected seconds, not {value!r:.60}")
    return float(value)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a text, not {value!r:.60}")  # noqa: TRY004  # one kind of error for all settings
    return value


def _strings(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(_string(each) for each in values)


_SETTINGS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_SECONDS, _seconds),
    **dict.fromkeys(_KEPT, _string),
    "output_paths": _strings,
}
