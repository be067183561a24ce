"""The flags of the service. `config.py` checks what is given."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from trainwarden.service_log import FORMATS
from trainwarden_remediator.config import DEFAULT_ALERTMANAGER, default_state_dir
from trainwarden_remediator.policies.modes import MODES, OPT_IN
from trainwarden_remediator.policies.policy import DEFAULT_POLICY, shipped

# What `--help` shows.
USUAL = ("--webhook-token-file", "--policy", "--mode-of-action", "--driver")


def add_service_flags(top: argparse.ArgumentParser) -> None:
    """Add them, in groups."""
    _serving(top)
    _drivers(top)
    _messages(top)
    _timing(top)


def _serving(top: argparse.ArgumentParser) -> None:
    group = top.add_argument_group("serving")
    group.add_argument(
        "--web.listen-address",
        dest="listen_address",
        default="127.0.0.1:9746",
        metavar="HOST:PORT",
        help="where to listen, default %(default)s; port 0 takes a free one",
    )
    group.add_argument(
        "--web.port-file",
        dest="port_file",
        type=Path,
        metavar="FILE",
        help="a file that holds the address really bound, as HOST:PORT, while the remediator runs",
    )
    group.add_argument(
        "--web.config.file",
        dest="web_config_file",
        type=Path,
        metavar="FILE",
        help="TLS, client certificates and users, in exporter-toolkit's format; read again when it changes",
    )
    group.add_argument(
        "--webhook-token-file",
        type=Path,
        metavar="FILE",
        help="the bearer token that the webhook and the API check, read again when it changes; required",
    )
    group.add_argument(
        "--state-dir",
        type=Path,
        default=default_state_dir(dict(os.environ)),
        metavar="DIR",
        help="the database, on a local file system, default %(default)s",
    )
    group.add_argument(
        "--webhook-user",
        action="append",
        default=[],
        metavar="NAME",
        help="a user of --web.config.file who may call the webhook and the API with a password instead; repeatable",
    )
    group.add_argument(
        "--alertmanager-url",
        action="append",
        metavar="URL",
        help=f"default {DEFAULT_ALERTMANAGER}; repeatable, for several that stand for each other",
    )
    group.add_argument("--prometheus-url", default="http://127.0.0.1:9090", metavar="URL", help="default %(default)s")
    for name, tool in (("alertmanager", "amtool"), ("prometheus", "promtool")):
        group.add_argument(
            f"--{name}-http-config-file",
            type=Path,
            metavar="FILE",
            help=f"credentials and certificates for it, in the format of {tool} --http.config.file",
        )
    group.add_argument(
        "--cluster",
        default="",
        metavar="NAME",
        help="the value of the label cluster whose alerts are taken; default: alerts of every cluster",
    )
    group.add_argument(
        "--policy",
        default=DEFAULT_POLICY,
        metavar="NAME|FILE",
        help=f"a policy file, or one of {', '.join(shipped())}; default %(default)s",
    )
    group.add_argument(
        "--policy-dir",
        type=Path,
        metavar="DIR",
        help="policy files that a run may select by name without .yaml, beside the shipped ones",
    )
    group.add_argument(
        "--run-policy",
        action="append",
        default=[],
        metavar="GLOB=NAME",
        help="the policy of the runs whose id matches, whatever their record selects; repeatable, the first counts",
    )
    group.add_argument(
        "--mode-of-action",
        choices=(OPT_IN, *MODES),
        default=OPT_IN,
        help="whether decisions are carried out: opt-in, the default, for runs that the operator or their own record "
        "gives a policy by name; observe for none, canary for a part of the runs, act for all",
    )
    group.add_argument(
        "--canary",
        action="store_true",
        help="a canary is kept in this cluster (the command canary): heal it in every mode, and report for how long it "
        "was not healed",
    )
    group.add_argument(
        "--canary-user",
        default="",
        metavar="USER",
        help="the user of the canary's job, default the remediator's own: no other job is taken for the canary",
    )
    group.add_argument(
        "--runs-dir",
        type=Path,
        metavar="DIR",
        help="the run records, if the remediator can read them: completed attempts are left alone, restarts announced",
    )
    group.add_argument(
        "--log.level",
        dest="log_level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="default %(default)s",
    )
    group.add_argument(
        "--log.format", dest="log_format", choices=FORMATS, default="text", help="of its log, default %(default)s"
    )


def _drivers(top: argparse.ArgumentParser) -> None:
    group = top.add_argument_group("schedulers")
    group.add_argument(
        "--driver",
        action="append",
        default=[],
        choices=("local", "slurm", "ray"),
        help="a scheduler to act on, repeatable; without any, decisions are only recorded",
    )
    group.add_argument("--local-launcher-url", metavar="URL", help="where the local launcher listens")
    group.add_argument("--local-launcher-token-file", type=Path, metavar="FILE", help="its bearer token")
    group.add_argument("--slurm-bin-dir", type=Path, metavar="DIR", help="where squeue and scontrol are, default PATH")
    group.add_argument(
        "--slurm-allow-user",
        action="append",
        default=[],
        metavar="NAME",
        help="act on this user's jobs too, repeatable; by default only on the remediator's own user's",
    )
    group.add_argument(
        "--ray-address",
        default="http://127.0.0.1:8265",
        metavar="URL",
        help="Ray's dashboard, default %(default)s; with --ray-head-pod as the pod sees it",
    )
    group.add_argument(
        "--ray-token-file",
        type=Path,
        metavar="FILE",
        help="the token that the dashboard requires, read for each request, default $RAY_AUTH_TOKEN",
    )
    group.add_argument("--ray-ca-file", type=Path, metavar="FILE", help="trusted instead of the system's certificates")
    group.add_argument(
        "--ray-template-dir",
        type=Path,
        metavar="DIR",
        help="what entrypoints reserve and copies of packages, by run; `ray register` writes it",
    )
    group.add_argument(
        "--ray-head-pod",
        metavar="POD",
        help="reach the dashboard through kubectl exec into this pod; svc/NAME and deploy/NAME mean a pod of theirs",
    )
    group.add_argument("--ray-namespace", metavar="NAME", help="namespace of the pod, default kubectl's")
    group.add_argument("--ray-container", metavar="NAME", help="container of the pod, default its first")
    group.add_argument("--ray-kubectl", default="kubectl", metavar="FILE", help="default %(default)s")
    group.add_argument(
        "--slurm-resubmit",
        action="store_true",
        help="submit jobs again, under a new id, that cannot be requeued (--no-requeue), as their owner; by default "
        "they are left alone",
    )
    group.add_argument(
        "--slurm-drain-nodes",
        default="0",
        metavar="N",
        help="drain nodes that restarts avoid for broken hardware, at most N at a time, default %(default)s: none",
    )


def _messages(top: argparse.ArgumentParser) -> None:
    text = "Off unless configured. Each decision, refusal, outcome and hand-over to a person is sent at least once."
    group = top.add_argument_group("messages to people", text)
    group.add_argument(
        "--notify-slack-url-file",
        type=Path,
        metavar="FILE",
        help="a file with the address of an incoming webhook of Slack's, read for each message",
    )
    group.add_argument(
        "--notify-sns-topic", metavar="ARN", help="a topic of SNS; needs boto3, which finds credentials by itself"
    )


def _timing(top: argparse.ArgumentParser) -> None:
    group = top.add_argument_group("timing", "Durations are seconds, or carry units: 500ms, 5s, 1h30m, 1d.")
    for flag, default, text in (
        ("--poll-interval", "5s", "between two polls of Alertmanager"),
        ("--busy-interval", "1s", "between two readings of the scheduler while a restart is under way"),
        ("--http-timeout", "5s", "for Prometheus, Alertmanager and the local launcher"),
        ("--slurm-timeout", "20s", "for one call of squeue or scontrol; after that its effect is in doubt"),
        ("--ray-timeout", "20s", "for one call to Ray's dashboard; after that its effect is in doubt"),
        ("--slurm-interval", "15s", "for which an answer of squeue is reused while nothing depends on it"),
        ("--doubt-window", "60s", "during which a call that is in doubt is not repeated"),
        ("--capture-timeout", "30s", "for the capture of stacks before a job that runs is ended, at most 30s"),
        ("--verify-timeout", "30m", "from the new start until its step must have passed the old one"),
    ):
        group.add_argument(flag, default=default, metavar="DURATION", help=f"{text}, default %(default)s")
    group.add_argument(
        "--max-actions",
        default="4",
        metavar="N",
        help="calls to schedulers that may be under way at a time, default %(default)s",
    )
    group.add_argument(
        "--storm-runs",
        default="5",
        metavar="N",
        help="runs that may be restarted within --storm-window; more are a storm: nothing is, default %(default)s",
    )
    group.add_argument("--storm-window", default="10m", metavar="DURATION", help="default %(default)s")
