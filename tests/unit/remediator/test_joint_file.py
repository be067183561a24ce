"""A file that names monitoring and restarts together is a policy too; a user's signals match by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.signals.test_users_packs import JOINT
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.policies.policy import load_policy, read_policy
from trainwarden_remediator.policies.vocabulary import covers_signal

if TYPE_CHECKING:
    from pathlib import Path


def test_the_restart_policy_of_a_joint_file_is_its_own_on_top_of_what_it_extends(tmp_path: Path) -> None:
    path = tmp_path / "joint.yaml"
    path.write_text(JOINT)
    policy, base = load_policy(str(path)), load_policy("megatron_transient")
    assert policy.rules["crash"].max_retries == 9
    assert {mode: rule for mode, rule in policy.rules.items() if mode != "crash"} == {
        mode: rule for mode, rule in base.rules.items() if mode != "crash"
    }


def test_a_file_that_only_names_a_policy_is_that_policy(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(JOINT.partition("defaults")[0] + JOINT[JOINT.index("policies") :])
    path = tmp_path / "config.yaml"
    path.write_text("defaults: [{/monitoring: megatron_production}, {/restart: mine}]\n")
    assert read_policy(path, "config").rules["crash"].max_retries == 9


@pytest.mark.parametrize("named", ["config", "no_such_policy"])
def test_a_policy_that_extends_itself_or_nothing_that_is_there_is_refused(tmp_path: Path, named: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"defaults: [{{/restart: {named}}}]\n")
    with pytest.raises(ConfigError):
        read_policy(path, "config")


def test_a_users_signal_is_restarted_by_its_name() -> None:
    assert covers_signal(["license_lost"], "license_lost", "license")
    assert not covers_signal(["license_lost"], "other", "license")
