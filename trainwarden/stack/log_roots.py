"""The folders in which the exporter of `trainwarden up` may read logs and packs, by the settings of the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainwarden.environment import read_run_settings
from trainwarden.errors import UsageError
from trainwarden.signals.pack import PackError, load_pack, shipped_packs
from trainwarden.signals.tailing.template import EXPECTED_RUN, InvalidTemplate, Template


def log_roots(environ: Mapping[str, str], folder: Path) -> tuple[Path, ...]:
    """Return the folders, and check the settings that name them.

    Args:
        environ: of the command.
        folder: in which the command is started.

    Raises:
        UsageError: the pack cannot be read, or the template of logs cannot be used.
    """
    settings = read_run_settings(environ)
    roots, templates = [folder], []
    if wanted := settings.get("signals"):
        if wanted not in shipped_packs():
            if not wanted.startswith("/"):
                raise UsageError(f"TRAINWARDEN_SIGNALS: {wanted!r} is none of {', '.join(shipped_packs())}, nor a file")
            roots.append(Path(wanted).resolve().parent)
        try:
            pack = load_pack(wanted)
        except PackError as error:
            raise UsageError(f"TRAINWARDEN_SIGNALS: {error}") from None
        templates += [text for text in (pack.log_path_template, *pack.output_paths) if text]
    if log_path := settings.get("log_path"):
        _require_usable(log_path, folder)
        templates.append(log_path)
    # What is relative is looked for in all folders.
    roots += [Path(Template.parse(text).root) for text in templates if _is_usable(text)]
    return tuple(dict.fromkeys(roots))


def _require_usable(text: str, folder: Path) -> None:
    try:
        template = Template.parse(text if text.startswith("/") else f"{folder}/{text}")
    except InvalidTemplate as error:
        raise UsageError(f"TRAINWARDEN_LOG_PATH: {error}") from None
    if not template.names_run:
        raise UsageError(f"TRAINWARDEN_LOG_PATH: {text!r} names no run: {EXPECTED_RUN}")


def _is_usable(text: str) -> bool:
    try:
        return Template.parse(text).names_run
    except InvalidTemplate:
        return False
