"""Packs of signals: the files that say what to look for in a log.

The schema is the one that users of SLURM log monitors have; `role`, `failure`, `framework`, `literals`, `examples` and
`not` are ours. A pack may extend others (`extends`, or Hydra's `defaults`); of two signals of a name the later counts.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwarden.signals.document import Document, Entry, PackError, read_document
from trainwarden.signals.model import Signal
from trainwarden.signals.reading import Warn, read_signal

__all__ = ["DEFAULT_PACK", "SHIPPED", "Pack", "PackError", "load_pack", "shipped_packs"]

SHIPPED = Path(__file__).parent / "packs"
DEFAULT_PACK = "all"

_SECONDS = (
    "poll_interval_seconds", "check_interval_seconds", "inactivity_threshold_seconds",
    "start_condition_interval_seconds",
)  # fmt: skip
_NOT_RUN = ("start_condition_cmd", "termination_command")
_KEPT = ("class_name", "log_path_template", "termination_string", *_NOT_RUN)
_IGNORED = ("hydra", "metadata")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pack:
    """Signals, and how a run with these logs wants to be watched. Times are in seconds; None where nothing is said.

    Attributes:
        inactivity_threshold_seconds: how long a log may be silent.
        poll_interval_seconds, check_interval_seconds: upper bounds of how rarely to look.
        output_paths: more logs of the run, templates like `log_path_template`.
        warnings: what of the file has no effect, each with file and line.
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
    """The names of the packs that come with Trainwarden."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.yaml")))


def load_pack(name_or_path: str | Path = DEFAULT_PACK) -> Pack:
    """Load a shipped pack by its name, or a file.

    Raises:
        PackError: there is none, or it is no YAML. A signal that is wrong is left out, with a warning.
    """
    path = _find(str(name_or_path), None)
    if path is None:
        raise PackError(f"{name_or_path}: no such file, and none of the packs {', '.join(shipped_packs())}")
    warnings: list[str] = []
    settings, signals = _Reader(warnings.append).read(path, ())
    for warning in warnings:
        _log.warning("%s", warning)
    return Pack(path.stem, str(path), tuple(signals.values()), **settings, warnings=tuple(warnings))


def _find(name: str, beside: Path | None) -> Path | None:
    path = Path(name).expanduser()
    folders = [folder for folder in (beside, None if beside else Path(), SHIPPED) if folder is not None]
    # A bare name of a shipped pack means that pack, whatever lies in the current folder.
    if beside is None and "/" not in name and not path.suffix:
        folders.reverse()
    for folder in folders:
        for candidate in (folder / path, folder / f"{path}.yaml", folder / f"{path}.yml"):
            if candidate.is_file():
                return candidate
    return None


class _Reader:
    """Reads a pack and what it extends."""

    def __init__(self, warn: Warn) -> None:
        self._warn = warn

    def read(self, path: Path, within: tuple[Path, ...]) -> tuple[dict[str, Any], dict[str, Signal]]:
        document = read_document(path)
        settings: dict[str, Any] = {}
        signals: dict[str, Signal] = {}
        own_read = False
        for base in self._bases(document):
            if base.value == "_self_":
                self._own(document, settings, signals)
                own_read = True
            else:
                self._base(base, document, (*within, path.resolve()), settings, signals)
        if not own_read:
            self._own(document, settings, signals)
        return settings, signals

    def _base(
        self,
        base: Entry,
        document: Document,
        within: tuple[Path, ...],
        settings: dict[str, Any],
        signals: dict[str, Signal],
    ) -> None:
        found = _find(base.value, document.path.parent)
        if found is None:
            self._warn(f"{base.place}: {base.value}: no such file beside it, and no such pack")
        elif found.resolve() in within:
            self._warn(f"{base.place}: {base.value}: extends itself")
        else:
            more_settings, more_signals = self.read(found, within)
            settings.update(more_settings)
            signals.update(more_signals)

    def _bases(self, document: Document) -> list[Entry]:
        bases = []
        if (extends := document.entries.get("extends")) is not None:
            entries = document.items.get("extends") or (extends,)
            bases += [Entry(str(entry.value), entry.place) for entry in entries]
        for entry in document.items.get("defaults", ()):
            if (name := self._hydra_name(entry)) is not None:
                bases.append(Entry(name, entry.place))
        return bases

    def _hydra_name(self, entry: Entry) -> str | None:
        """`name`, `/monitoring: name`, `name@package`; groups of other things than monitoring are no packs."""
        value = entry.value
        if isinstance(value, dict) and len(value) == 1:
            group, value = next(iter(value.items()))
            group = str(group).split("@")[0].removeprefix("override ").removeprefix("optional ").strip("/")
            if group.split("/")[-1] != "monitoring" or value is None:
                self._warn(f"{entry.place}: defaults: {group}: is no pack of signals and has no effect")
                return None
        if not isinstance(value, str):
            self._warn(f"{entry.place}: defaults: expected a name, not {value!r:.60}")
            return None
        return value if value == "_self_" else value.split("@")[0].strip("/").removeprefix("monitoring/")

    def _own(self, document: Document, settings: dict[str, Any], signals: dict[str, Signal]) -> None:
        for key, entry in document.entries.items():
            if key in ("extends", "defaults", "log_signals", *_IGNORED):
                continue
            self._setting(key, entry, settings)
        if "log_signals" in document.entries and "log_signals" not in document.items:
            entry = document.entries["log_signals"]
            if entry.value is not None:
                self._warn(f"{entry.place}: log_signals: expected a list, not {entry.value!r:.60}")
        shipped = SHIPPED in document.path.parents
        for entry in document.items.get("log_signals", ()):
            if isinstance(entry.value, dict) and entry.value.get("enabled") is False:
                signals.pop(str(entry.value.get("name")), None)
            elif signal := read_signal(entry, shipped, self._warn):
                signals[signal.name] = signal

    def _setting(self, key: str, entry: Entry, settings: dict[str, Any]) -> None:
        reader = _SETTINGS.get(key)
        if reader is None:
            self._warn(f"{entry.place}: {key}: is not known and has no effect")
            return
        if entry.value is None:
            return
        try:
            value = reader(entry.value)
        except ValueError as error:
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
