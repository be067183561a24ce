"""`check-config`: reads every file that the flags name, as a start would, and names what is wrong with all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainwarden.errors import UsageError
from trainwarden.server.web_config import ReloadingWebConfig
from trainwarden_remediator.app import build_channels, build_drivers
from trainwarden_remediator.config import RemediatorSettings, canary_users, read_token
from trainwarden_remediator.errors import ConfigError, RemediatorError
from trainwarden_remediator.examine.choice import Policies, load_policies
from trainwarden_remediator.web.http_config import http_client


@dataclass(frozen=True)
class Checked:
    """What was found: nothing is wrong where there are no problems; `policies` are None where they cannot be used."""

    problems: tuple[str, ...]
    policies: Policies | None

    @property
    def warnings(self) -> list[str]:
        """What is allowed but seldom meant."""
        return self.policies.warnings() if self.policies else []

    def as_text(self) -> str:
        """Return the policies that would apply, a line each."""
        if self.policies is None:
            return ""
        lines = [f"policy of runs that name none: {self.policies.default.name}"]
        lines += [f"policy of runs {pattern}: {policy.name}" for pattern, policy in self.policies.assigned]
        lines += [f"mode of action: {self.policies.mode}", f"policies: {', '.join(sorted(self.policies.named))}"]
        return "\n".join(lines) + "\n"


def check_config(settings: RemediatorSettings) -> Checked:
    """Read all files. Nothing is changed, no server is contacted, and no lock is taken."""
    policies: list[Policies] = []

    def read_policies() -> None:
        found = load_policies(
            settings.policy,
            settings.policy_dir,
            settings.run_policy,
            settings.mode_of_action,
            canary_job=settings.canary,
        )
        policies.append(found)

    found = (problem for step in (read_policies, *_other_files(settings)) for problem in _problems_of(step))
    return Checked(tuple(dict.fromkeys(found)), policies[0] if policies else None)


def _other_files(settings: RemediatorSettings) -> Iterator[Callable[[], object]]:
    yield lambda: read_token("--webhook-token-file", settings.webhook_token_file)
    yield lambda: build_drivers(settings)
    yield lambda: build_channels(settings)
    # Each of the two stops at its first problem; without what that is about, the next one shows.
    yield lambda: build_drivers(settings.model_copy(update={"slurm_allow_user": []}))
    yield lambda: build_channels(settings.model_copy(update={"notify_slack_url_file": None}))
    yield lambda: canary_users(settings)
    servers = [("prometheus", settings.prometheus_url, settings.prometheus_http_config_file)]
    servers += [("alertmanager", url, settings.alertmanager_http_config_file) for url in settings.alertmanager_url]
    for name, url, file in servers:
        yield lambda name=name, url=url, file=file: http_client(  # type: ignore[misc]  # it is called without arguments
            f"--{name}-http-config-file", url, file, settings.http_timeout
        )
    if settings.web_config_file is not None:
        file = settings.web_config_file
        yield lambda: ReloadingWebConfig(file)


def _problems_of(step: Callable[[], object]) -> tuple[str, ...]:
    try:
        step()
    except ConfigError as error:
        return error.problems
    except (RemediatorError, UsageError, OSError) as error:
        return (str(error),)
    return ()
