"""`trainwarden health RUN`: GPUs, network, checkpoints and cluster of a training in one report, printed and as data."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwarden.beneath import open_inside
from trainwarden.checkpoint.find import search
from trainwarden.clients.prometheus import PrometheusClient, PrometheusError
from trainwarden.command_line import CommandLine
from trainwarden.errors import UsageError
from trainwarden.record.folder import LOG
from trainwarden.redaction import label_text, plain
from trainwarden.runs.arguments import add_stale_argument, service_url, stale_seconds
from trainwarden.runs.assessment import ENDED, PENDING, RUNNING, UNKNOWN, WARNING, Assessment, assess
from trainwarden.runs.places import (
    CannotRead,
    RecordFolder,
    RecordPrefix,
    add_place_arguments,
    fetch_run,
    open_place,
)
from trainwarden.runs.table import age_text, shown, write
from trainwarden.signals.nccl_lines import EFA, SOCKET, networks_of, slowest

# Below this mean utilisation the GPUs of a run that trains do nothing.
_IDLE_PERCENT = 5.0
_MIB = 2**20
_LOG_BYTES = 4 * 2**20
_CHECK_SECONDS = 30.0


def main(argv: list[str]) -> int:
    """Print the report. Return 0 if all is well, 1 if not, 2 for misuse, 3 if that cannot be seen."""
    parser = CommandLine(
        prog="trainwarden health",
        description="Report the health of a training: its state, GPUs, network, checkpoints and cluster.",
        epilog="exit status: 0 healthy; 1 not; 2 misuse, or no such run; 3 cannot tell",
    )
    parser.add_argument("run", metavar="RUN")
    add_place_arguments(parser)
    parser.add_argument("--prometheus", type=service_url, metavar="URL", help="for GPUs, network, Ray and alerts")
    parser.add_argument("--checkpoint-dir", metavar="PATH", help="verify the newest checkpoint there")
    add_stale_argument(parser)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    client = PrometheusClient(arguments.prometheus) if arguments.prometheus else None
    try:
        with open_place(arguments) as place:
            report = _report(place, arguments.run, client, arguments.checkpoint_dir, stale_seconds(arguments))
    except UsageError as error:
        parser.error(plain(str(error)))
    except CannotRead as error:
        print(f"trainwarden health: {plain(str(error))}", file=sys.stderr)
        return 2 if error.is_final else 3
    if arguments.json:
        print(json.dumps(report))
    else:
        print_run_health(report)
    return {True: 0, False: 1, None: 3}[report["healthy"]]


def run_health(
    run_id: str,
    *,
    runs_dir: str | Path | None = None,
    s3: str | None = None,
    prometheus: str | None = None,
    checkpoint_dir: str | None = None,
) -> dict[str, Any]:
    """Return the report about a run as data; what is unknown is None.

    Args:
        run_id: of the run.
        runs_dir: folder of the records; the default one if None.
        s3: a prefix in S3 instead.
        prometheus: address of the Prometheus that scrapes the exporters; without it GPUs and Ray are unknown.
        checkpoint_dir: folder or prefix of checkpoints to verify; those that the record names count if None.

    Raises:
        UsageError: there is no such run or place.
        CannotRead: the record cannot be read now.
    """
    from argparse import Namespace  # noqa: PLC0415  # beside its only use

    with open_place(Namespace(s3=s3, runs_dir=Path(runs_dir) if runs_dir else None)) as place:
        client = PrometheusClient(prometheus) if prometheus else None
        return _report(place, run_id, client, checkpoint_dir, None)


def print_run_health(report: Mapping[str, Any]) -> None:
    """Print a report for people."""
    gpu, efa, saved, ray = report["gpu"], report["efa"], report["checkpoints"], report["ray"]
    word = {True: "HEALTHY", False: "NOT HEALTHY", None: "UNKNOWN"}[report["healthy"]]
    lines = [f"{report['run_id']}  {word}  {report['status']}" + (f", {report['phase']}" if report["phase"] else "")]
    gpus = "unknown" + ("" if report["prometheus"] else ": no --prometheus")
    if gpu["gpu_count"]:
        gpus = f"{gpu['gpu_count']}"
        if gpu["avg_utilization"] is not None:
            gpus += f", {gpu['avg_utilization']:.0f} % busy"
        if gpu["memory_used"]:
            gpus += f", memory {sum(gpu['memory_used']):.0f} of {sum(gpu['memory_total']):.0f} MiB"
    network = efa["transport"] or "unknown: no line of NCCL_DEBUG=INFO in the logs"
    checkpoint = "none known"
    if saved["latest_step"] is not None or saved["path"]:
        step = "" if saved["latest_step"] is None else f"step {saved['latest_step']}, "
        checkpoint = f"{step}{age_text(saved['age_seconds'])}" + (f", {saved['answer']}" if saved["answer"] else "")
    lines += [f"GPUs         {gpus}", f"Network      {network}", f"Checkpoint   {checkpoint}"]
    if ray["gpus_available"] is not None:
        lines.append(f"Ray          {ray['gpus_used'] or 0:g} of {ray['gpus_available']:g} GPUs in use")
    lines += [f"Issue        {issue}" for issue in report["issues"]]
    lines += [f"Unknown      {problem}" for problem in report["problems"]]
    write("".join(f"{shown(line)}\n" for line in lines))


def _report(
    place: RecordFolder | RecordPrefix,
    run_id: str,
    client: PrometheusClient | None,
    checkpoint_dir: str | None,
    stale: float | None,
) -> dict[str, Any]:
    folder = fetch_run(place, run_id)
    run = assess(folder, time.time(), stale, fetched=isinstance(place, RecordPrefix), run_id=run_id)
    issues, problems = [], list(run.notes)
    if run.is_bad:
        issues.append(run.reason or f"no new step for {run.stall_seconds:.0f} s")
    if run.status == PENDING and run.last_sign is None:
        problems.append(run.reason)
    gpu, ray, alerts = _no_gpus(), _no_ray(), []
    efa = _transport_of_log(folder, run)
    if client is not None:
        try:
            gpu, ray = _gpus(client, run_id), _ray(client)
            efa = _transport(client, run_id) or efa
            alerts = _alerts(client, run_id)
        except PrometheusError as error:
            problems.append(plain(str(error)))
    checkpoints = _checkpoints(run, checkpoint_dir)
    issues += _issues(run, gpu, efa, checkpoints, ray, alerts)
    healthy: bool | None = not issues
    if healthy and (run.status == UNKNOWN or problems):
        healthy = None
    return {
        "run_id": run_id,
        "healthy": healthy,
        "status": run.status,
        "phase": run.phase,
        "step": run.progress.step if run.progress else None,
        "issues": issues,
        "problems": problems,
        "gpu": gpu,
        "efa": efa,
        "checkpoints": checkpoints,
        "ray": ray,
        "alerts": alerts,
        "prometheus": None if client is None else client.url,
    }


def _issues(
    run: Assessment,
    gpu: Mapping[str, Any],
    efa: Mapping[str, Any],
    checkpoints: Mapping[str, Any],
    ray: Mapping[str, Any],
    alerts: list[str],
) -> list[str]:
    found = [f"GPU {name} does not answer" for name in gpu["lost"]]
    trains = run.status in (RUNNING, WARNING) and (run.metadata is None or run.metadata.phase in (None, "train"))
    mean = gpu["avg_utilization"]
    if trains and mean is not None and mean < _IDLE_PERCENT:
        found.append(
            f"The GPUs do nothing ({mean:.0f} % busy): was the training given them? One that `ray job submit` started "
            "may run without"
        )
    if trains and ray["gpus_available"] and not ray["gpus_used"] and mean is None:
        found.append("Ray has GPUs, and none is in use")
    if efa["efa_active"] is False and efa["ok"] is False:
        found.append(
            f"NCCL uses {efa['transport']}, not the fast network: set NCCL_NET=ofi, and LD_LIBRARY_PATH to its plugin"
        )
    if checkpoints["answer"] == "incomplete":
        found.append(f"The newest checkpoint is not complete: {checkpoints['evidence']}")
    if run.status in ENDED:
        return [*found, *(f"Alert {name} fires" for name in alerts if name != "TrainRunSucceeded")]
    return [*found, *(f"Alert {name} fires" for name in alerts)]


def _gpus(client: PrometheusClient, run_id: str) -> dict[str, Any]:
    own = f'and on (instance, uuid) training_gpu_info{{run_id="{run_id}"}}'

    def read(metric: str) -> dict[tuple[str, str], float]:
        samples = client.query(f"{metric} {own}")
        return {(each.labels.get("instance", ""), each.labels.get("gpu", "")): each.value for each in samples}

    up, busy = read("gpu_up"), read("gpu_utilization_ratio")
    used, size = read("gpu_memory_used_bytes"), read("gpu_memory_size_bytes")
    names = sorted(up.keys() | busy.keys())
    utilizations = [100 * busy[name] for name in names if name in busy]
    return {
        "gpu_count": len(names),
        "gpu_utilizations": utilizations,
        "memory_used": [used[name] / _MIB for name in names if name in used and name in size],
        "memory_total": [size[name] / _MIB for name in names if name in used and name in size],
        "avg_utilization": sum(utilizations) / len(utilizations) if utilizations else None,
        "lost": [f"{gpu} of {instance}" for (instance, gpu), value in sorted(up.items()) if value == 0],
        "healthy": all(value != 0 for value in up.values()) if names else None,
    }


def _no_gpus() -> dict[str, Any]:
    return {
        "gpu_count": None, "gpu_utilizations": [], "memory_used": [], "memory_total": [], "avg_utilization": None,
        "lost": [], "healthy": None,
    }  # fmt: skip


def _transport(client: PrometheusClient, run_id: str) -> dict[str, Any] | None:
    samples = client.query(f'training_nccl_transport{{run_id="{run_id}"}} > 0')
    if not samples:
        return None
    names = sorted({each.labels.get("transport", "") for each in samples})
    ok = [each.value for each in client.query(f'training_nccl_transport_ok{{run_id="{run_id}"}}')]
    return {"efa_active": names == ["efa"], "transport": ", ".join(names), "ok": min(ok) == 1 if ok else None}


def _transport_of_log(folder: Path, run: Assessment) -> dict[str, Any]:
    """Return the network that NCCL uses by the beginning of the run's log: the slowest of all processes."""
    try:
        with open(open_inside(str(folder), str(folder / LOG)), "rb") as file:  # noqa: PTH123  # a descriptor
            data = file.read(_LOG_BYTES)
    except OSError:
        data = b""
    slow = slowest(networks_of(data))
    if slow is None:
        return {"efa_active": None, "transport": None, "ok": None}
    transport, provider = slow
    environment = run.metadata.environment if run.metadata else {}
    # Sockets are wrong where the environment requests another network.
    wants = environment.get("nccl_net", "").lower() not in ("", "socket") or "efa" in environment.get("fi_provider", "")
    ok = False if wants and transport == SOCKET else None
    return {"efa_active": transport == EFA, "transport": label_text(provider or transport, 64), "ok": ok}


def _checkpoints(run: Assessment, checkpoint_dir: str | None) -> dict[str, Any]:
    known = run.progress.checkpoint if run.progress else None
    found: dict[str, Any] = {
        "latest_step": known.step if known else None,
        "path": label_text(known.path, 300) if known else None,
        "age_seconds": run.time - known.time if known and known.time is not None else None,
        "answer": None,
        "evidence": None,
    }
    if checkpoint_dir is not None:
        result = search(checkpoint_dir, seconds=_CHECK_SECONDS)
        if result.best is None:
            found |= {"answer": "incomplete", "evidence": plain(result.problem or f"none in {checkpoint_dir}")}
        else:
            best, verdict = result.best
            found |= {
                "latest_step": best.step,
                "path": label_text(best.path, 300),
                "answer": verdict.answer,
                "evidence": plain("; ".join(verdict.evidence))[:300],
            }
    return found


def _ray(client: PrometheusClient) -> dict[str, Any]:
    def total(metric: str) -> float | None:
        values = [each.value for each in client.query(f"sum({metric})")]
        return values[0] if values else None

    found = {
        "gpus_available": total("ray_cluster_gpus"),
        "gpus_used": total("ray_cluster_gpus_allocated"),
        "cpus_available": total("ray_cluster_cpus"),
        "cpus_used": total("ray_cluster_cpus_allocated"),
    }
    return {**found, "healthy": True if found["gpus_available"] is not None else None}


def _no_ray() -> dict[str, Any]:
    return {**dict.fromkeys(("gpus_available", "gpus_used", "cpus_available", "cpus_used")), "healthy": None}


def _alerts(client: PrometheusClient, run_id: str) -> list[str]:
    alerts = [each.labels for each in client.alerts() if each.state == "firing"]
    return sorted({plain(each.get("alertname", "")) for each in alerts if each.get("run_id") == run_id})
