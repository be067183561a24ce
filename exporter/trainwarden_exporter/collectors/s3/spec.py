"""Flags, default and creation of the collector of records in S3."""

from __future__ import annotations

import argparse
import atexit
import importlib.util
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.clients.s3_location import InvalidLocation, parse_s3_url, records_location
from trainwarden.command_line import duration_seconds
from trainwarden.errors import UsageError
from trainwarden_exporter.collectors.s3.local_copy import copy_folder
from trainwarden_exporter.core.runs_folder import runs_folder
from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.core.state_folder import StateFolder, StateFolderLocked, default_folder
from trainwarden_exporter.flag_values import positive_count, some_path
from trainwarden_exporter.sampling.subprocess_collector import ChildSpec, SubprocessCollector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainwarden_exporter.core.node import Node
    from trainwarden_exporter.core.spec import Context

log = logging.getLogger(__name__)

# Of the child: ten times what it needs.
MEMORY_BYTES = 512 * 2**20

# Locked for as long as the process lives: one exporter at a time writes into a folder of copies.
_held: dict[Path, StateFolder] = {}
_temporary: dict[Path, Path] = {}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this collector has."""
    parser.add_argument(
        "--collector.s3.url",
        action="append",
        default=[],
        type=_url,
        metavar="s3://BUCKET/PREFIX",
        help="where records are, may be repeated (default: $MONITORING_BUCKET and the prefix training-runs)",
    )
    parser.add_argument(
        "--collector.s3.cache",
        type=some_path,
        metavar="FOLDER",
        help="where the copies are kept (default: beside the state of the logs)",
    )
    parser.add_argument(
        "--collector.s3.max",
        type=positive_count,
        default=2000,
        metavar="N",
        help="runs copied at most, of each place (default %(default)s)",
    )
    for name, default in (("connect", "3s"), ("read", "5s")):
        parser.add_argument(
            f"--collector.s3.{name}-timeout",
            type=duration_seconds,
            default=default,
            metavar="DURATION",
            help=f"of each request, to {name} (default %(default)s)",
        )


def enabled(context: Context) -> bool:
    """Return whether a place in S3 is named and can be read. A wrong environment alone stops no exporter."""
    flags = context.flags
    if flags["collector.s3.url"]:
        return True
    if flags["collector.runs"] is False:
        return False  # the collector that exports them is off
    try:
        found = urls(flags)
    except UsageError as error:
        log.warning("records in S3 are not copied: %s", error)
        return False
    if found and not _has_boto3():
        log.warning("records in S3 are not copied: boto3 is not installed")
        return False
    return bool(found)


def urls(flags: Mapping[str, Any]) -> list[str]:
    """Return the places that the flags, else $MONITORING_BUCKET, name; raises `UsageError` if that names none."""
    given: list[str] = flags["collector.s3.url"]
    if given:
        return list(dict.fromkeys(given))
    environ = {name: text for name, text in os.environ.items() if name.startswith("MONITORING_")}
    try:
        location = records_location(environ=environ)
    except InvalidLocation as error:
        raise UsageError(str(error)) from error
    return [str(location)] if location else []


def copies(context: Context) -> list[Path]:
    """Return the folders of the copies, which the collector `runs` reads; none where nothing is copied."""
    flags = context.flags
    is_on: bool | None = flags["collector.s3"]
    if is_on is None:
        is_on = not flags["collector.disable_defaults"] and enabled(context)
    return [copy_folder(_cache(context.node, flags), url) for url in urls(flags)] if is_on else []


def create(context: Context) -> SubprocessCollector:
    """Return its subprocess; raises `UsageError` if no place is named, or the copies can be kept nowhere."""
    node, flags = context.node, context.flags
    found = urls(flags)
    if not found:
        raise UsageError("--collector.s3: expected --collector.s3.url s3://bucket/prefix, or $MONITORING_BUCKET")
    if not _has_boto3():
        raise UsageError("--collector.s3: boto3 is not installed, expected trainwarden[s3]")
    settings = {
        "urls": found,
        "region": os.environ.get("MONITORING_REGION") or None,
        "cache": str(_cache(node, flags)),
        "runs": flags["collector.s3.max"],
        "interval": context.interval,
        "timeout": context.timeout,
        "connect_seconds": flags["collector.s3.connect_timeout"],
        "read_seconds": flags["collector.s3.read_timeout"],
        "memory_bytes": MEMORY_BYTES,
    }
    module = "trainwarden_exporter.collectors.s3.collector"
    return SubprocessCollector(ChildSpec("s3", module, context.interval, context.timeout, settings))


def _has_boto3() -> bool:
    return importlib.util.find_spec("boto3") is not None


def _url(text: str) -> str:
    try:
        return str(parse_s3_url(text, source="--collector.s3.url"))
    except InvalidLocation as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _cache(node: Node, flags: Mapping[str, Any]) -> Path:
    """Lock and return the folder of the copies; raises `UsageError` if a flag names it and it cannot be used."""
    given: Path | None = flags["collector.s3.cache"]
    beside = default_folder(node.host, runs_folder(flags))
    path = (given or beside.with_name(f"{beside.name}-s3")).absolute()
    if path in _temporary:
        return _temporary[path]
    if path not in _held:
        try:
            _held[path] = StateFolder(path)
        except (OSError, StateFolderLocked) as error:
            reason = str(error) if isinstance(error, StateFolderLocked) else f"{path}: {error.strerror}"
            beside_service = flags["once"] and isinstance(error, StateFolderLocked)
            if given and not beside_service:
                raise UsageError(f"--collector.s3.cache {reason}; expected a folder of its own") from error
            if not beside_service:
                log.warning("the copies of records in S3 are not kept over a restart: %s", reason)
            _temporary[path] = Path(tempfile.mkdtemp(prefix="trainwarden-s3-"))
            atexit.register(shutil.rmtree, _temporary[path], ignore_errors=True)
            return _temporary[path]
    return path


SPEC = CollectorSpec(
    name="s3",
    help="the records of runs in S3",
    interval="20s",
    timeout="60s",
    create=create,
    enabled=enabled,
    add_flags=add_flags,
)
