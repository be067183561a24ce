"""`trainwarden doctor`: what is wrong with this installation, and the command that mends it. Changes nothing.

Each check has three answers: it is well, it is not, it cannot be seen from here.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import platform
import pwd
import re
import secrets
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwarden import __version__
from trainwarden.clients.alertmanager import AlertmanagerClient, AlertmanagerError
from trainwarden.clients.http import HttpClient, HttpError
from trainwarden.clients.process import ProcessError, run
from trainwarden.clients.prometheus import PrometheusClient, PrometheusError
from trainwarden.clients.s3 import DENIED, MISSING, S3Bucket, S3Error
from trainwarden.clients.s3_boto3 import MissingBoto3, load_boto3
from trainwarden.clients.s3_location import InvalidLocation, S3Location, records_location
from trainwarden.clients.slurm.client import CommandsMissing, SlurmClient, SlurmError, find_commands
from trainwarden.command_line import CommandLine
from trainwarden.errors import UsageError
from trainwarden.record.folder import runs_dir
from trainwarden.redaction import plain
from trainwarden.runs.arguments import service_url
from trainwarden.runs.table import shown, write
from trainwarden.stack.bundle import BundleMissing, bundle

_EXPORTER, _REMEDIATOR = "http://127.0.0.1:9745", "http://127.0.0.1:9746"
_SECONDS = 5.0
_FREE_BYTES = 2**30
_SMI_SECONDS = 20.0
_HOT_CELSIUS = 90
_PLUGINS = ("libnccl-net-ofi.so*", "libnccl-net.so*", "libnccl-net-aws-ofi.so*")
_PLUGIN_FOLDER = "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu"
_ALERT = re.compile(r"^\s*-?\s*alert:\s*[\"']?(\w+)", re.MULTILINE)
_SUCCESS = re.compile(r'^trainwarden_collector_success\{[^}]*collector="([^"]*)"[^}]*\} ([01])', re.MULTILINE)
_RIGHTS = "s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject and s3:DeleteObject below the prefix"


@dataclass(frozen=True)
class Finding:
    """One answer. `ok` is None where it cannot be seen; `fix` is a command or a sentence, empty where all is well."""

    check: str
    ok: bool | None
    message: str
    fix: str = ""


def main(argv: list[str]) -> int:
    """Print what was found. Return 0 if all is well, 1 if something is wrong, 2 for misuse, 3 if unseen."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        location = None if arguments.s3 is None else records_location(arguments.s3)
        if arguments.s3 == "" and location is None:
            parser.error("--s3: expected s3://BUCKET/PREFIX, or TRAINWARDEN_S3_URL or MONITORING_BUCKET set")
        location = location or records_location(None)
    except InvalidLocation as error:
        parser.error(plain(str(error)))
    try:
        found = list(_findings(arguments, location))
    except UsageError as error:
        parser.error(plain(str(error)))
    if arguments.json:
        print(json.dumps({"findings": [vars(each) for each in found], "status": _status(found)}))
    else:
        _print(found)
    return _status(found)


def _parser() -> CommandLine:
    parser = CommandLine(
        prog="trainwarden doctor",
        description="Find what is wrong with this installation, and name the command that mends it.",
        epilog="exit status: 0 all is well; 1 something is wrong; 2 misuse; 3 something cannot be seen from here",
    )
    parser.add_argument("--runs-dir", type=Path, help="the folder of the run records (default: as `trainwarden runs`)")
    parser.add_argument(
        "--s3", nargs="?", const="", metavar="s3://BUCKET/PREFIX", help="records there; also where variables name it"
    )
    for name, default, what in (
        ("exporter", _EXPORTER, "of this node"),
        ("prometheus", None, "that scrapes the exporters and has the rules"),
        ("alertmanager", None, "that routes the alerts"),
        ("remediator", _REMEDIATOR, "of this cluster"),
    ):
        stated = f" (default: {default}, where it answers)" if default else ""
        parser.add_argument(f"--{name}", type=service_url, metavar="URL", help=f"the one {what}{stated}")
    parser.add_argument("--json", action="store_true")
    return parser


def _findings(arguments: argparse.Namespace, location: S3Location | None) -> Iterator[Finding]:
    yield from _library()
    yield from _folder(arguments.runs_dir or runs_dir())
    if location is not None:
        yield from check_s3(location)
    yield from check_network()
    yield from _gpus()
    yield from _exporter(arguments.exporter)
    if arguments.prometheus:
        yield from check_prometheus(PrometheusClient(HttpClient(arguments.prometheus, _SECONDS)))
    else:
        yield Finding("prometheus", None, "not looked at", "trainwarden doctor --prometheus URL")
    if arguments.alertmanager:
        yield from _alertmanager(arguments.alertmanager)
    yield from _remediator(arguments.remediator)
    yield from _slurm()


def _library() -> Iterator[Finding]:
    yield Finding("library", True, f"trainwarden {__version__}, Python {platform.python_version()}")


def _folder(folder: Path) -> Iterator[Finding]:
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        yield Finding("records", False, f"{there} is no folder", f"mv {shlex.quote(str(there))} elsewhere")
        return
    if not os.access(there, os.W_OK | os.X_OK):
        user = pwd.getpwuid(os.geteuid()).pw_name if _has_name() else str(os.geteuid())
        fix = f"install -d -m 1777 {shlex.quote(str(folder))}, as root; or export TRAINWARDEN_RUNS_DIR"
        yield Finding("records", False, f"{there}: {user} cannot write there", fix)
        return
    free = shutil.disk_usage(there).free
    if free < _FREE_BYTES:
        yield Finding("records", False, f"{folder}: {free // 2**20} MiB are free", f"df -h {shlex.quote(str(there))}")
        return
    made = "" if folder.exists() else ", which the first run makes"
    yield Finding("records", True, f"{folder}{made}")


def _has_name() -> bool:
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True


def check_s3(location: S3Location) -> Iterator[Finding]:
    """Yield whether this process may list, write, read and delete below `location`, by doing so with one object."""
    try:
        load_boto3()
    except MissingBoto3:
        yield Finding("s3", False, f"{location}: boto3 is not installed", "pip install 'trainwarden[s3]'")
        return
    bucket = S3Bucket(location)
    name = f".trainwarden-doctor-{secrets.token_hex(4)}"
    done = "list"
    try:
        bucket.page()
        done = "write"
        bucket.put(name, b"trainwarden doctor\n")
        done = "read"
        bucket.get(name)
        done = "delete"
        bucket.delete(name)
    except S3Error as error:
        fix = {
            DENIED: f"give the role {_RIGHTS}",
            MISSING: f"aws s3 mb s3://{location.bucket}",
        }.get(error.reason, "check the network, AWS_ENDPOINT_URL_S3 and the proxy")
        is_known = error.reason in (DENIED, MISSING)
        yield Finding("s3", False if is_known else None, f"cannot {done}: {plain(str(error))}", fix)
        return
    if abs(bucket.clock_offset or 0) > 60:
        message = f"the clock here is {abs(bucket.clock_offset or 0):.0f} s off that of S3"
        yield Finding("s3", False, message, "chronyc makestep")
        return
    yield Finding("s3", True, f"{location}: may list, write, read and delete")


def check_network(environ: Mapping[str, str] = os.environ, sysfs: str = "/sys") -> Iterator[Finding]:
    """Yield whether the environment lets NCCL use the fast network of this node."""
    devices = sorted(glob.glob(f"{sysfs}/class/infiniband/*"))  # noqa: PTH207  # a pattern of one folder
    efa = [path for path in devices if os.path.basename(os.path.realpath(f"{path}/device/driver")) == "efa"]  # noqa: PTH119
    forced = environ.get("NCCL_NET", "")
    if not devices:
        yield Finding("network", True, "no EFA or InfiniBand device here")
    elif forced.lower() == "socket":
        yield Finding("network", False, f"NCCL_NET={forced}, with {len(devices)} fast devices", "unset NCCL_NET")
    elif efa:
        folders = [*environ.get("LD_LIBRARY_PATH", "").split(":"), _PLUGIN_FOLDER, "/opt/aws-ofi-nccl/lib", "/usr/lib"]
        where = [folder for folder in folders if folder and _has_plugin(folder)]
        on_path = [folder for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder in where]
        if not where:
            fix = "install aws-ofi-nccl, and put its folder into LD_LIBRARY_PATH"
            yield Finding("network", False, f"{len(efa)} EFA devices, and no OFI plugin of NCCL", fix)
        elif not on_path and "/usr/lib" not in where:
            fix = f"export NCCL_NET=ofi LD_LIBRARY_PATH={shlex.quote(where[0])}:$LD_LIBRARY_PATH"
            yield Finding("network", False, f"the OFI plugin in {where[0]} is not in LD_LIBRARY_PATH", fix)
        elif environ.get("FI_PROVIDER", "efa") != "efa":
            message = f"FI_PROVIDER={environ['FI_PROVIDER']}, with {len(efa)} EFA devices"
            yield Finding("network", False, message, "export FI_PROVIDER=efa")
        else:
            yield Finding("network", True, f"{len(efa)} EFA devices, and the OFI plugin")
    elif environ.get("NCCL_IB_DISABLE", "0") not in ("", "0"):
        yield Finding("network", False, f"NCCL_IB_DISABLE, with {len(devices)} devices", "unset NCCL_IB_DISABLE")
    else:
        yield Finding("network", True, f"{len(devices)} InfiniBand devices")
    if devices and environ.get("NCCL_DEBUG", "").upper() not in ("INFO", "TRACE"):
        message = "NCCL_DEBUG is not INFO: logs will not name the network that NCCL uses"
        yield Finding("nccl log", None, message, "export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET")


def _has_plugin(folder: str) -> bool:
    return any(glob.glob(f"{glob.escape(folder)}/{name}") for name in _PLUGINS)  # noqa: PTH207  # as above


def _gpus() -> Iterator[Finding]:
    program = shutil.which("nvidia-smi")
    if program is None:
        if glob.glob("/dev/nvidia[0-9]*"):  # noqa: PTH207  # as above
            fix = "install the driver's utilities (nvidia-utils)"
            yield Finding("gpus", None, "there are NVIDIA devices, and no nvidia-smi", fix)
        elif shutil.which("amd-smi"):
            yield Finding("gpus", None, "AMD GPUs are not looked at", "amd-smi monitor")
        else:
            yield Finding("gpus", True, "no GPU here")
        return
    fields = "index,uuid,temperature.gpu,ecc.errors.uncorrected.volatile.total,memory.used"
    try:
        done = run([program, f"--query-gpu={fields}", "--format=csv,noheader,nounits"], _SMI_SECONDS)
    except ProcessError as error:
        fix = "dmesg | grep -i -e xid -e nvrm; then reboot the node"
        yield Finding("gpus", False, f"nvidia-smi gives no answer: {plain(str(error))}", fix)
        return
    if done.status:
        message = plain(done.output.decode("utf-8", "replace")) or done.message
        yield Finding("gpus", False, f"nvidia-smi: {message[:200]}", "dmesg | grep -i -e xid -e nvrm")
        return
    yield from read_gpus(done.output.decode("utf-8", "replace"))


def read_gpus(text: str) -> Iterator[Finding]:
    """Yield what is wrong with GPUs by nvidia-smi's lines of index, uuid, celsius, ECC errors and MiB in use."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]
    wrong = 0
    for row in rows:
        if len(row) < 5:
            wrong += 1
            yield Finding("gpus", False, f"nvidia-smi: {plain(', '.join(row))[:200]}", "nvidia-smi -q")
        elif row[3].isdigit() and int(row[3]) > 0:
            wrong += 1
            message = f"GPU {row[0]}: {row[3]} uncorrected memory errors since the driver was loaded"
            yield Finding("gpus", False, message, f"nvidia-smi --gpu-reset -i {row[0]}, or drain the node")
        elif row[2].isdigit() and int(row[2]) >= _HOT_CELSIUS:
            wrong += 1
            fix = f"nvidia-smi -q -d TEMPERATURE,PERFORMANCE -i {row[0]}"
            yield Finding("gpus", False, f"GPU {row[0]}: {row[2]} °C", fix)
    if not wrong:
        yield Finding("gpus", True, f"{len(rows)} GPUs answer")


def _exporter(given: str | None) -> Iterator[Finding]:
    url = given or _EXPORTER
    try:
        answer = HttpClient(url, _SECONDS).get("/metrics")
    except HttpError as error:
        fix = "trainwarden-exporter, or systemctl start trainwarden-exporter"
        yield Finding("exporter", False if given else None, f"{url}: {error.reason}", fix)
        return
    text = answer.body.decode("utf-8", "replace")
    if answer.status != 200 or "trainwarden_build_info" not in text:
        yield Finding(
            "exporter", False, f"{url} is no trainwarden-exporter: status {answer.status}", "see docs/exporter.md"
        )
        return
    failing = sorted(name for name, value in _SUCCESS.findall(text) if value == "0")
    if failing:
        fix = "journalctl -u trainwarden-exporter, or trainwarden-exporter --once"
        yield Finding("exporter", False, f"collectors fail: {plain(', '.join(failing))}", fix)
    else:
        yield Finding("exporter", True, f"{url} answers")


def check_prometheus(client: PrometheusClient) -> Iterator[Finding]:
    """Yield whether Prometheus has the exporters and the rules."""
    try:
        exporters = client.query("count(trainwarden_build_info)")
        down = client.query("up == 0 and on (job, instance) last_over_time(trainwarden_build_info[1d])")
        rules = client.rules()
    except PrometheusError as error:
        yield Finding("prometheus", False, plain(str(error)), f"curl {shlex.quote(client.url)}/-/ready")
        return
    if not exporters:
        fix = "add the nodes to scrape_configs: deploy/prometheus has a configuration"
        yield Finding("targets", False, "Prometheus has no series of an exporter", fix)
    elif down:
        names = ", ".join(sorted(plain(each.labels.get("instance", "")) for each in down)[:8])
        yield Finding(
            "targets",
            False,
            f"exporters that cannot be scraped: {names}",
            "systemctl status trainwarden-exporter, there",
        )
    else:
        yield Finding("targets", True, f"{exporters[0].value:.0f} exporters are scraped")
    try:
        shipped = {name for path in bundle("rules").glob("alerts/*.yml") for name in _ALERT.findall(path.read_text())}
    except BundleMissing as error:
        yield Finding("rules", None, str(error), "pip install --force-reinstall trainwarden")
        return
    loaded = {rule.name for rule in rules}
    missing = sorted(shipped - loaded)
    failing = sorted({rule.name for rule in rules if rule.health == "err"})
    if missing:
        what = "no rule of Trainwarden" if len(missing) == len(shipped) else f"without {', '.join(missing[:5])}"
        fix = "trainwarden rules build --out DIR, then add DIR/*.yml to rule_files and reload"
        yield Finding(
            "rules", False, f"Prometheus has {len(shipped) - len(missing)} of {len(shipped)} alerts: {what}", fix
        )
    elif failing:
        yield Finding(
            "rules", False, f"rules that fail: {', '.join(failing[:5])}", f"curl {shlex.quote(client.url)}/api/v1/rules"
        )
    else:
        yield Finding("rules", True, f"{len(shipped)} alerts are loaded")


def _alertmanager(url: str) -> Iterator[Finding]:
    http = HttpClient(url, _SECONDS)
    try:
        AlertmanagerClient(http).alerts()
        status = http.get("/api/v2/status").json()
        text = str(status["config"]["original"])
    except AlertmanagerError as error:
        yield Finding("routes", False, plain(str(error)), f"curl {shlex.quote(url)}/-/ready")
        return
    except (HttpError, KeyError, TypeError):
        yield Finding("routes", None, f"{url}: its configuration cannot be read", "amtool config show")
        return
    if "remediate" not in text:
        fix = "take the routes of alertmanager/alertmanager.yml: docs/alertmanager.md"
        yield Finding("routes", False, "no route leads to the remediator", fix)
    else:
        yield Finding("routes", True, f"{url} has a route to the remediator")


def _remediator(given: str | None) -> Iterator[Finding]:
    url = given or _REMEDIATOR
    try:
        answer = HttpClient(url, _SECONDS).get("/-/ready")
    except HttpError as error:
        fix = "systemctl start trainwarden-remediator, on the node where it runs"
        yield Finding("remediator", False if given else None, f"{url}: {error.reason}", fix)
        return
    if answer.status == 200:
        yield Finding("remediator", True, f"{url} is ready")
    else:
        reason = plain(answer.body.decode("utf-8", "replace"))[:200]
        fix = "journalctl -u trainwarden-remediator; trainwarden-remediator check-config"
        yield Finding("remediator", False, f"{url} is not ready: {reason}", fix)


def _slurm() -> Iterator[Finding]:
    try:
        commands = find_commands(None, ("scontrol", "sacctmgr"))
    except CommandsMissing:
        return
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
        rights = SlurmClient(commands, _SECONDS).rights(name, os.geteuid())
    except (SlurmError, KeyError) as error:
        yield Finding("slurm", None, plain(str(error)), "scontrol ping")
        return
    if rights.may_change_all:
        yield Finding("slurm", True, f"{name} may restart every job")
    else:
        accounts = f", and those of {', '.join(sorted(rights.accounts))}" if rights.accounts else ""
        message = f"{name} may restart its own jobs{accounts}; a remediator needs more to restart those of others"
        fix = f"sacctmgr modify user {shlex.quote(name)} set adminlevel=operator"
        yield Finding("slurm", rights.may_change_all if rights.may_change_all is None else True, message, fix)


def _status(found: Sequence[Finding]) -> int:
    if any(each.ok is False for each in found):
        return 1
    return 3 if any(each.ok is None for each in found) else 0


def _print(found: Sequence[Finding]) -> None:
    words = {True: "ok", False: "WRONG", None: "?"}
    for each in found:
        write(f"{words[each.ok]:<6}{each.check:<12}{shown(each.message)}\n")
        if each.fix and each.ok is not True:
            write(f"      {'':<12}do: {shown(each.fix)}\n")
