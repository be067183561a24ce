"""A configuration file of each format with every key, and the command that reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_HASH = "$2b$04$" + "a" * 53
_JOBS: dict[str, Any] = {
    "runs_dir": "/runs",
    "log_roots": ["/logs"],
    "marked": False,
    "grace": "1m",
    "max_jobs": 10,
    "max_log_bytes": 1000,
}
_RULE: dict[str, Any] = {
    "ignore": False,
    "run_id": "run-%j",
    "logs": ["/logs/%j"],
    "inactivity": "10m",
    "restart_stalls": True,
    "signals": "megatron_basic",
    "policy": "default",
    "framework": "f",
    "model": "m",
    "checkpoints": {"path": "/checkpoints", "trust": "layout"},
    "resume": {"environment": {"RESUME": "{path}"}, "arguments": "--resume {path}"},
}
_ACTION = {"event": ["checkpoint_saved"], "signal": ["x"], "once_per": "event", "timeout": "1m", "max_running": 1}
RULES = "trainwarden rules build --values FILE"


class Format(NamedTuple):
    """A file: the command that reads it, `FILE` for its name, and a file with every key."""

    name: str
    command: str
    document: Mapping[str, Any]


FORMATS = (
    Format(
        "jobs of `trainwarden slurm`",
        "trainwarden slurm jobs --config FILE --slurm-bin-dir empty",
        {
            **_JOBS,
            "mark": True,
            "jobs": [{"match": dict.fromkeys(("partition", "account", "user", "name", "comment"), "x"), **_RULE}],
        },
    ),
    Format(
        "jobs of `trainwarden ray`",
        "trainwarden ray jobs --config FILE --ray-token-file missing",
        {
            **_JOBS,
            "jobs": [{"match": {"submission_id": "x", "entrypoint": "x", "metadata.KEY": "x"}, **_RULE}],
        },
    ),
    Format(
        "actions of `trainwarden actions`",
        "trainwarden actions --config FILE --check",
        {
            "runs_dir": "/runs",
            "signals": "megatron_basic",
            "log_paths": ["/logs/{run_id}.log"],
            "actions": {
                "evaluate": {
                    **_ACTION,
                    "command": ["/bin/evaluate", "{step}", "{path}", "{name}"],
                    "runs": "*",
                    "directory": "/tmp",
                    "parameters": {
                        "step": {"type": "int", "min": 0, "max": 9},
                        "path": {"type": "path", "under": ["/checkpoints"]},
                        "name": {"type": "identifier", "pattern": "[a-z]+"},
                    },
                },
                "submit": {**_ACTION, "sbatch": ["/jobs/evaluate.sbatch"]},
            },
        },
    ),
    Format(
        "web.config",
        "trainwarden-exporter check-config --web.config.file FILE",
        {
            "http_server_config": {
                "http2": False,
                "headers": {
                    "Strict-Transport-Security": "max-age=1",
                    "X-Content-Type-Options": "nosniff",
                    "X-Frame-Options": "deny",
                    "X-XSS-Protection": "1",
                    "Content-Security-Policy": "x",
                },
            },
            "basic_auth_users": {"user": _HASH},
            "rate_limit": {"interval": "1s", "burst": 1},
        },
    ),
    Format(
        "tls_server_config of web.config, of certificates that are missing",
        "trainwarden-exporter check-config --web.config.file FILE",
        {
            "tls_server_config": {
                "cert_file": "missing.crt",
                "key_file": "missing.key",
                "client_auth_type": "RequireAndVerifyClientCert",
                "client_ca_file": "missing.ca",
                "client_allowed_sans": ["name"],
                "min_version": "TLS12",
                "max_version": "TLS13",
                "cipher_suites": ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"],
                "prefer_server_cipher_suites": True,
                "curve_preferences": ["X25519"],
            }
        },
    ),
    Format(
        "http.config of the remediator, by token",
        "trainwarden-remediator --webhook-token-file token --prometheus-http-config-file FILE"
        " --prometheus-url https://127.0.0.1:1 check-config",
        {
            "authorization": {"type": "Bearer", "credentials_file": "token"},
            "tls_config": {"ca_file": "missing.ca", "cert_file": "missing.crt", "key_file": "missing.key"},
        },
    ),
    Format(
        "http.config of the remediator, by password",
        "trainwarden-remediator --webhook-token-file token --prometheus-http-config-file FILE check-config",
        {"basic_auth": {"username": "user", "password_file": "token"}},
    ),
    Format(
        "configuration of the exporter, whose keys are its flags",
        "trainwarden-exporter check-config FILE",
        {
            "web": {"listen-address": [":1"], "max-requests": 1},
            "collector": {"runs": {"enabled": True, "path": "runs", "scope": "host"}, "slurm.enabled": False},
        },
    ),
    Format(
        "values of the rules",
        RULES,
        {
            "values": {"pace.warmup_seconds": "15m"},
            "labels": {"team": "x"},
            "runbooks": "https://wiki.example.com",
            "dashboards": "https://grafana.example.com",
            "alerts": {"TrainRunSlow": {"enabled": True, "severity": "info", "for": "5m", "labels": {"team": "x"}}},
            "kubernetes": {"namespace": "x", "labels": {"x": "y"}},
        },
    ),
)
