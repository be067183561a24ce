"""The flags of the command line, checked: every problem at once, each with its flag."""

from __future__ import annotations

import argparse
import math
import os
import pwd
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from trainwarden.duration import parse_duration
from trainwarden.server.address import parse_address
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.validation import problems_of

DEFAULT_ALERTMANAGER = "http://127.0.0.1:9093"
_MAX_TOKEN_BYTES = 4096
_FLAG = re.compile(r"--(?:web\.)?([a-z-]+)")


def _http_url(text: str) -> str:
    expected = "expected http://HOST:PORT or https://HOST:PORT"
    if "@" in text:  # not quoted: it may hold a password
        raise ValueError(f"{expected}, without user and password")
    try:
        url = urlsplit(text)
        is_usable = bool(url.hostname) and url.port != 0
    except ValueError:
        raise ValueError(f"{text!r}: {expected}") from None
    if url.scheme not in ("http", "https") or not is_usable or url.query or url.fragment:
        raise ValueError(f"{text!r}: {expected}")
    return text.rstrip("/")


Url = Annotated[str, AfterValidator(_http_url)]
PodName = Annotated[str, Field(pattern=r"^(?:svc/|deploy/)?[a-z0-9][a-z0-9.-]{0,252}$")]
Label = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
Address = Annotated[tuple[str, int], BeforeValidator(parse_address)]
Seconds = Annotated[float, BeforeValidator(parse_duration), Field(le=7 * 86400)]


class RemediatorSettings(BaseModel):
    """The flags, checked. Durations are seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listen_address: Address
    port_file: Path | None
    web_config_file: Path | None
    state_dir: Path
    webhook_token_file: Path
    webhook_user: list[str]
    alertmanager_url: list[Url]
    alertmanager_http_config_file: Path | None
    prometheus_url: Url
    prometheus_http_config_file: Path | None
    notify_slack_url_file: Path | None
    notify_sns_topic: str | None
    policy: str
    policy_dir: Path | None
    run_policy: list[str]
    mode_of_action: str
    canary: bool
    canary_user: str
    driver: list[str]
    cluster: str
    runs_dir: Path | None
    local_launcher_url: Url | None
    local_launcher_token_file: Path | None
    slurm_bin_dir: Path | None
    slurm_allow_user: list[str]
    slurm_timeout: Seconds
    slurm_interval: Seconds
    ray_address: Url
    ray_token_file: Path | None
    ray_ca_file: Path | None
    ray_template_dir: Path | None
    ray_head_pod: PodName | None
    ray_namespace: Label | None
    ray_container: Label | None
    ray_kubectl: str
    ray_timeout: Seconds
    slurm_resubmit: bool
    slurm_drain_nodes: Annotated[int, Field(ge=0, le=1000)]
    http_timeout: Seconds
    poll_interval: Seconds
    busy_interval: Seconds
    max_actions: Annotated[int, Field(ge=1, le=64)]
    storm_runs: Annotated[int, Field(ge=1)]
    storm_window: Seconds
    doubt_window: Seconds
    verify_timeout: Seconds
    capture_timeout: Annotated[Seconds, Field(le=30)]


def settings_from(arguments: argparse.Namespace) -> RemediatorSettings:
    """Check parsed arguments. Raises ConfigError."""
    values = {name: getattr(arguments, name) for name in RemediatorSettings.model_fields}
    values["alertmanager_url"] = list(dict.fromkeys(values["alertmanager_url"] or [DEFAULT_ALERTMANAGER]))
    try:
        settings = RemediatorSettings.model_validate(values)
    except ValidationError as error:
        raise ConfigError([_as_flag(problem) for problem in problems_of(error)]) from None
    problems = []
    if "local" in settings.driver and (not settings.local_launcher_url or not settings.local_launcher_token_file):
        problems.append("--driver local: needs --local-launcher-url and --local-launcher-token-file")
    if settings.ray_head_pod is None and (settings.ray_namespace or settings.ray_container):
        problems.append("--ray-namespace, --ray-container: are of a pod; expected --ray-head-pod as well")
    if settings.ray_template_dir is not None and not _is_folder(settings.ray_template_dir):
        problems.append(f"--ray-template-dir: {settings.ray_template_dir}: expected a folder")
    if settings.runs_dir is not None and not _is_folder(settings.runs_dir):
        problems.append(f"--runs-dir: {settings.runs_dir}: expected a folder")
    if settings.webhook_user and settings.web_config_file is None:
        problems.append("--webhook-user: needs --web.config.file, whose basic_auth_users have the passwords")
    if problems:
        raise ConfigError(problems)
    return settings


def usable_settings(
    arguments: argparse.Namespace, defaults: argparse.Namespace
) -> tuple[RemediatorSettings, list[str]]:
    """Return what `settings_from` does, with the default for each flag that is wrong, and what is wrong with those."""
    taken, found = argparse.Namespace(**vars(arguments)), list[str]()
    taken.webhook_token_file = taken.webhook_token_file or Path(os.devnull)
    while True:
        try:
            return settings_from(taken), found
        except ConfigError as error:  # noqa: PERF203  # a flag less each time
            found += error.problems
            for flag in (flag for problem in error.problems for flag in _FLAG.findall(problem.partition(":")[0])):
                name = flag.replace("-", "_")
                setattr(taken, name, getattr(defaults, name))


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112  # Path.is_dir() raises where this user may not look


def duration_of(flag: str, text: str, most: float = math.inf) -> float:
    """Return the seconds of a duration that was given for a flag of a command; raises ConfigError also above `most`."""
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ConfigError([f"{flag}: {error}"]) from None
    if seconds > most:
        raise ConfigError([f"{flag}: {text!r}: expected at most {most / 86400:g}d, or no such flag"])
    return seconds


def read_token(flag: str, path: Path) -> str:
    """Return the token in a file, stripped; raises ConfigError if it is missing, empty or no printable ASCII."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_TOKEN_BYTES + 1)
    except OSError as error:
        raise ConfigError([f"{flag}: {path}: {error.strerror}"]) from None
    token = content.strip()
    if not token:
        raise ConfigError([f"{flag}: {path}: empty; expected a token"])
    if len(content) > _MAX_TOKEN_BYTES or not all(33 <= byte <= 126 for byte in token):
        raise ConfigError([f"{flag}: {path}: expected one line of printable ASCII without spaces"])
    return token.decode("ascii")


def allowed_users(names: list[str]) -> set[int]:
    """Return the uids whose SLURM jobs may be changed: the process's own, and the named; raises ConfigError."""
    return {os.getuid()} | {_uid("--slurm-allow-user", name) for name in names}


def canary_users(settings: RemediatorSettings) -> frozenset[int]:
    """Return the uids whose job may be the canary: one where it is kept, else none; raises ConfigError."""
    if not settings.canary:
        return frozenset()
    return frozenset((_uid("--canary-user", settings.canary_user) if settings.canary_user else os.getuid(),))


def _uid(flag: str, name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        raise ConfigError([f"{flag}: {name!r}: no such user on this machine"]) from None


def default_state_dir(environment: dict[str, str]) -> Path:
    """Return `/var/lib/trainwarden/remediator` where it can be written, else a folder in the user's state folder."""
    system = Path("/var/lib/trainwarden")
    if system.is_dir() and os.access(system, os.W_OK):
        return system / "remediator"
    home = environment.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "trainwarden" / "remediator"


def _as_flag(problem: str) -> str:
    name, _, rest = problem.partition(":")
    flag = {"listen_address": "web.listen-address"}.get(name, re.split(r"[.[]", name)[0].replace("_", "-"))
    return f"--{flag}:{rest}"
