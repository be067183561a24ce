"""The checks of this node: the library, the folder of records, S3, the network's variables, the GPUs."""

from __future__ import annotations

import glob
import json
import os
import platform
import pwd
import secrets
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainwarden import __version__
from trainwarden.clients.process import ProcessError, run
from trainwarden.clients.s3 import DENIED, MISSING, S3Bucket, S3Error
from trainwarden.clients.s3_boto3 import MissingBoto3, load_boto3
from trainwarden.clients.s3_location import S3Location
from trainwarden.doctor import Finding
from trainwarden.redaction import plain

_FREE_BYTES = 2**30
_SMI_SECONDS = 20.0
_HOT_CELSIUS = 90
# AMD slows its GPUs down by the hottest point of the chip.
_HOT_SPOT_CELSIUS = 105
_PLUGINS = ("libnccl-net-ofi.so*", "libnccl-net.so*", "libnccl-net-aws-ofi.so*")
_PLUGIN_FOLDER = "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu"
_RIGHTS = "s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject and s3:DeleteObject below the prefix"


def check_library() -> Iterator[Finding]:
    """Yield the versions."""
    yield Finding("library", True, f"trainwarden {__version__}, Python {platform.python_version()}")


def check_folder(folder: Path) -> Iterator[Finding]:
    """Yield whether this user may write the records there, and whether there is room."""
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


def check_gpus() -> Iterator[Finding]:
    """Yield what is wrong with the GPUs of this node, by nvidia-smi or amd-smi."""
    program = shutil.which("nvidia-smi")
    if program is None:
        if glob.glob("/dev/nvidia[0-9]*"):  # noqa: PTH207  # as above
            fix = "install the driver's utilities (nvidia-utils)"
            yield Finding("gpus", None, "there are NVIDIA devices, and no nvidia-smi", fix)
        elif amd := shutil.which("amd-smi"):
            yield from _amd_gpus(amd)
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


def _amd_gpus(program: str) -> Iterator[Finding]:
    fix = "dmesg | grep -i amdgpu"
    try:
        done = run([program, "metric", "--temperature", "--ecc", "--json"], _SMI_SECONDS)
    except ProcessError as error:
        yield Finding("gpus", False, f"amd-smi gives no answer: {plain(str(error))}", f"{fix}; then reboot the node")
        return
    if done.status:
        message = plain(done.output.decode("utf-8", "replace")) or done.message
        yield Finding("gpus", False, f"amd-smi: {message[:200]}", fix)
        return
    yield from read_amd_gpus(done.output)


def read_amd_gpus(document: bytes) -> Iterator[Finding]:
    """Yield what is wrong with GPUs by what `amd-smi metric --temperature --ecc --json` prints."""
    try:
        found = json.loads(document)
        listed = found["gpu_data"] if isinstance(found, dict) else found
        gpus = [each for each in listed if isinstance(each, dict)]
    except (ValueError, KeyError, TypeError, RecursionError):
        yield Finding("gpus", None, "amd-smi prints what cannot be read", "amd-smi metric")
        return
    wrong = 0
    for gpu in gpus:
        number, ecc, temperature = gpu.get("gpu"), gpu.get("ecc"), gpu.get("temperature")
        errors = _amd_number(ecc, "total_uncorrectable_count")
        limits = (("hotspot", _HOT_SPOT_CELSIUS), ("edge", _HOT_CELSIUS), ("mem", _HOT_CELSIUS + 10))
        hot = [(name, value) for name, limit in limits if (value := _amd_number(temperature, name) or 0) >= limit]
        if errors:
            wrong += 1
            message = f"GPU {number}: {errors:g} uncorrected memory errors since the driver was loaded"
            yield Finding("gpus", False, message, f"amd-smi reset --gpureset -g {number}, or drain the node")
        elif hot:
            wrong += 1
            yield Finding("gpus", False, f"GPU {number}: {hot[0][1]:g} °C ({hot[0][0]})", f"amd-smi metric -g {number}")
    if not wrong:
        yield Finding("gpus", True, f"{len(gpus)} GPUs answer")


def _amd_number(values: Any, name: str) -> float | None:
    """Return a number that stands alone, or as `{"value": 45, "unit": "C"}`; None for "N/A"."""
    value = values.get(name) if isinstance(values, dict) else None
    value = value.get("value") if isinstance(value, dict) else value
    return float(value) if isinstance(value, (int, float)) else None
