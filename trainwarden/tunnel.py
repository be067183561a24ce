"""`trainwarden tunnel HOST`: forward a port of a remote machine by ssh, and check that metrics come through it."""

from __future__ import annotations

import argparse
import ipaddress
import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import IO

from trainwarden.clients.http import HttpClient, HttpError
from trainwarden.clients.process import ProcessError, run
from trainwarden.command_line import CommandLine
from trainwarden.errors import UsageError
from trainwarden.redaction import plain

# The port of a fine-tuning job's metrics; the exporter's is 9745.
DEFAULT_PORT = 8000
_CONNECT_SECONDS = 30.0
_LOOK_SECONDS = 0.1
_ANSWER_SECONDS = 5.0
_END_SECONDS = 5.0
_CONFIGURATION_SECONDS = 10.0
# In the order of the lines.
_SETTINGS = ("HostName", "User", "Port", "IdentityFile", "IdentitiesOnly", "ProxyJump", "ProxyCommand", "HostKeyAlias")
# No part of it can be an option, or mean anything to a shell: ssh gives host and user to ProxyCommand and LocalCommand.
_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}"
_HOST = re.compile(rf"(?:{_NAME}@)?(?:{_NAME}|[0-9A-Fa-f]{{0,4}}(?::[0-9A-Fa-f]{{0,4}}){{2,7}})")
_SERIES = re.compile(rb"^([A-Za-z_:][\w:]*)", re.MULTILINE)
_PREFIXES = ("finetuning_", "training_", "gpu_")
# What ssh writes, and what to do about it.
_ADVICE = (
    ("Address already in use", "another program has the local port: take --local-port; `ss -ltnp` shows it"),
    ("Could not resolve hostname", "the name is unknown here: check it, or add a HostName to ~/.ssh/config"),
    ("Host key verification failed", "the host's key is unknown or has changed: `ssh HOST` once, and compare its key"),
    ("Permission denied", "no key of yours is accepted there: `ssh-copy-id HOST`, or name it with IdentityFile"),
    ("administratively prohibited", "the host's sshd does not forward: AllowTcpForwarding in its sshd_config"),
    ("Connection refused", "no sshd listens there, or a firewall refuses: check host and port of ssh"),
    ("Connection timed out", "the host gives no answer: check its address, the VPN and the firewall"),
    ("No route to host", "the host gives no answer: check its address, the VPN and the firewall"),
)


@dataclass(frozen=True)
class Check:
    """What came through. `series` counts series by the first part of their names; `problem` is why there are none."""

    url: str
    ok: bool
    series: dict[str, int]
    problem: str = ""


def main(argv: list[str]) -> int:
    """Forward until interrupted. Return 0 if metrics came through, 1 if not, 2 for misuse."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    local = arguments.local_port or arguments.port
    if arguments.script:
        sys.stdout.write(SCRIPT)
        return 0
    if arguments.check:
        return _report(check_metrics(local), as_json=arguments.json)
    try:
        host = check_host(arguments.host)
        if arguments.config:
            sys.stdout.write(config_snippet(host, local, arguments.port))
            return 0
        return _forward(host, local, arguments)
    except UsageError as error:
        parser.error(str(error))
    return 2


def _parser() -> CommandLine:
    parser = CommandLine(
        prog="trainwarden tunnel",
        description="Forward a port of a remote machine by ssh, and check that metrics come through it.",
        epilog="exit status: 0 metrics came through; 1 they did not; 2 misuse. Ctrl-C closes the tunnel.",
    )
    parser.add_argument("host", nargs="?", metavar="[USER@]HOST", help="as for ssh; names of ~/.ssh/config too")
    parser.add_argument("--port", type=_port, default=DEFAULT_PORT, help="of the metrics, there (default: 8000)")
    parser.add_argument("--local-port", type=_port, help="here (default: the same)")
    parser.add_argument("--once", action="store_true", help="open it, check, and close it")
    parser.add_argument("--check", action="store_true", help="check a tunnel that is open already; no HOST")
    parser.add_argument("--config", action="store_true", help="print the lines for ~/.ssh/config, and end")
    parser.add_argument("--script", action="store_true", help="print a shell script that checks without Trainwarden")
    parser.add_argument("--json", action="store_true", help="print what the check found as JSON")
    return parser


def check_host(host: str | None) -> str:
    """Return a host that ssh can take for nothing else; raises UsageError."""
    if not host:
        raise UsageError("expected HOST, or --check or --script")
    if not _HOST.fullmatch(host):
        raise UsageError(
            f"{plain(host)[:80]!r} is no host: expected HOST or USER@HOST, of letters, digits, '.', '_', '-'"
        )
    return host


def ssh_command(host: str, local: int, remote: int) -> list[str]:
    """Return the command that forwards loopback's `local` here to its `remote` there; `host` as of `check_host`."""
    return [
        "ssh",
        "-N",
        "-T",
        "-o", "ExitOnForwardFailure=yes",
        "-o", "ServerAliveInterval=15",
        "-o", "ConnectTimeout=15",
        "-L", f"127.0.0.1:{local}:localhost:{remote}",
        "--",
        host,
    ]  # fmt: skip


def config_snippet(host: str, local: int, remote: int) -> str:
    """Return the lines of ~/.ssh/config by which `ssh NAME` alone opens the tunnel.

    What the user's configuration of ssh states about the host goes into them, for the new name is another host to ssh.
    """
    user, _, name = host.rpartition("@")
    settings = _ssh_settings(name)
    if user:
        settings["User"] = [user]
    settings.setdefault("HostName", [name])
    short = name if _is_address(name) else name.partition(".")[0]
    lines = [f"Host {short}-metrics"]
    lines += [f"    {key} {value}" for key in _SETTINGS for value in settings.get(key, ())]
    lines += [
        f"    LocalForward {local} localhost:{remote}",
        "    ExitOnForwardFailure yes",
        "    ServerAliveInterval 15",
    ]
    return "\n".join(lines) + "\n"


def _ssh_settings(name: str) -> dict[str, list[str]]:
    """Return of `_SETTINGS` what the configuration of ssh states about a host, beyond ssh's defaults."""
    program = shutil.which("ssh")
    if program is None:
        return {}
    try:
        stated = run([program, "-G", "--", name], _CONFIGURATION_SECONDS)
        default = run([program, "-F", "none", "-G", "--", name], _CONFIGURATION_SECONDS)
    except ProcessError:
        return {}
    if stated.status or default.status:
        return {}
    defaults = set(default.output.decode("utf-8", "replace").splitlines())
    settings: dict[str, list[str]] = {}
    for line in stated.output.decode("utf-8", "replace").splitlines():
        word, _, value = line.partition(" ")
        key = next((each for each in _SETTINGS if each.lower() == word), None)
        if key and line not in defaults:
            settings.setdefault(key, []).append(plain(value))
    return settings


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def check_metrics(port: int) -> Check:
    """Read the metrics at a port of loopback, and count their series."""
    url = f"http://127.0.0.1:{port}/metrics"
    try:
        answer = HttpClient(url, _ANSWER_SECONDS).get("")
    except HttpError as error:
        problem = {
            "connection": "nothing answers: is the metrics server running there, on that port?",
            "timeout": "no answer in time: does a firewall drop the connection there?",
        }.get(error.reason, str(error))
        return Check(url, False, {}, problem)
    names = [name.decode() for name in _SERIES.findall(answer.body)]
    series = {prefix: sum(name.startswith(prefix) for name in names) for prefix in _PREFIXES}
    if answer.status != 200:
        return Check(url, False, {}, f"status {answer.status}: it is no page of metrics")
    if not any(series.values()):
        problem = "there are no metrics of a training: was it started with its metrics enabled?"
        return Check(url, False, series, problem)
    return Check(url, True, series)


def _forward(host: str, local: int, arguments: argparse.Namespace) -> int:
    program = shutil.which("ssh")
    if program is None:
        raise UsageError("ssh is not installed; apt-get install openssh-client")
    if not _is_free(local):
        raise UsageError(
            f"port {local} is in use here: Address already in use; take --local-port, `ss -ltnp` shows by whom"
        )
    with tempfile.TemporaryFile() as errors:
        command = [program, *ssh_command(host, local, arguments.port)[1:]]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=errors) as process:
            try:
                return _serve(process, errors, host, local, arguments)
            except KeyboardInterrupt:
                return 130
            finally:
                _end(process)


def _serve(
    process: subprocess.Popen[bytes], errors: IO[bytes], host: str, local: int, arguments: argparse.Namespace
) -> int:
    if not _wait_for_port(process, local):
        return _failed(errors, host, "ssh did not open the tunnel")
    found = check_metrics(local)
    status = _report(found, as_json=arguments.json)
    if arguments.once or arguments.json:
        return status
    pattern = next((prefix for prefix in _PREFIXES if found.series.get(prefix)), _PREFIXES[0])
    print(f"The tunnel is open until Ctrl-C: {found.url}")
    print(f"  watch -n 5 'curl -s {found.url} | grep ^{pattern} | head -20'")
    print(f"Without Trainwarden: {shlex.join(ssh_command(host, local, arguments.port))}", flush=True)
    process.wait()
    return _failed(errors, host, "the tunnel was closed")


def _failed(errors: IO[bytes], host: str, what: str) -> int:
    errors.seek(0)
    text = errors.read(65_536).decode("utf-8", "replace")
    last = plain(text.strip().splitlines()[-1]) if text.strip() else "without a reason"
    print(f"trainwarden tunnel: {what}: {last[:300]}", file=sys.stderr)
    advice = next((advice for words, advice in _ADVICE if words in text), None)
    if advice:
        print(f"  {advice.replace('HOST', host)}", file=sys.stderr)
    return 1


def _report(found: Check, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps(vars(found)), flush=True)
    elif found.ok:
        counts = ", ".join(f"{count} {prefix}…" for prefix, count in found.series.items() if count)
        print(f"✓ {found.url}: {counts}".encode(sys.stdout.encoding, "replace").decode(sys.stdout.encoding), flush=True)
    else:
        print(f"trainwarden tunnel: {found.url}: {found.problem}", file=sys.stderr)
    return 0 if found.ok else 1


def _wait_for_port(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until ssh listens, which is after it has connected and logged in."""
    end = time.monotonic() + _CONNECT_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return True
        except OSError:  # noqa: PERF203  # ten times a second
            time.sleep(_LOOK_SECONDS)
    return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


def _port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a port, 1 to 65535")
    return port


SCRIPT = r"""#!/bin/sh
# Check that metrics of a training come through an ssh tunnel. Usage: sh validate_metrics_remote.sh [PORT]
# Needs curl alone. Exit status: 0 they do; 1 they do not; 2 misuse.
port="${1:-8000}"
case "$port" in
  '' | *[!0-9]*) echo "expected a port, not '$port'" >&2; exit 2 ;;
esac
command -v curl >/dev/null || { echo "curl is not installed" >&2; exit 2; }
url="http://127.0.0.1:$port/metrics"
failed=0

pass() { echo "ok    $1"; }
fail() { echo "WRONG $1"; [ -z "$2" ] || echo "      do: $2"; failed=1; }

if command -v ss >/dev/null && ! ss -ltn 2>/dev/null | grep -q "[:.]$port "; then
  fail "nothing listens on port $port here" "ssh -f -N -L $port:localhost:$port USER@HOST"
fi
if page="$(curl -sf --max-time 5 "$url")"; then
  pass "$url answers"
else
  fail "$url gives no answer" "see that the metrics server runs there, on that port: curl there"
  exit 1
fi
if count="$(printf '%s\n' "$page" | grep -c -E '^(finetuning|training)_')"; then
  pass "$count series of a training"
else
  fail "no series of a training" "start the training with its metrics enabled"
fi
for pattern in 'finetuning_job_status|training_run_state' 'finetuning_train_loss|training_loss' \
  'finetuning_training_step|training_step'; do
  if printf '%s\n' "$page" | grep -q -E "^($pattern)[{ ]"; then
    pass "$pattern"
  else
    fail "neither of $pattern" "the training has not reported it yet, or does not"
  fi
done
exit "$failed"
"""
