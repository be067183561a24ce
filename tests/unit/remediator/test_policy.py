"""Policy files: users' schema is read, everything else is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.offenders import assert_none, raised
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.policies.policy import load_policy, shipped

FROM_A_USER = """
policies:
  - mode: crash
    implementation:
      class_name: SelectiveRestartPolicy
      max_retries: 5
      default_action: stop

      # the network alone
      restart_on_error_types:
        - nccl
        - nccl_timeout

      # memory never
      exclude_error_types:
        - oom
"""


def test_every_shipped_policy_is_valid_and_answers_every_mode() -> None:
    megatron = ["megatron_aggressive", "megatron_conservative", "megatron_transient"]
    assert shipped() == ["canary", "default", *megatron, "none", "observe"]
    for name in shipped():
        policy = load_policy(name)
        assert set(policy.rules) == {"crash", "stall", "timeout", "success"}
        assert policy.warnings() == []


def test_cancelled_in_a_policy_gets_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(FROM_A_USER.replace("- nccl\n", "- cancelled\n"))
    assert ["cancelled" in warning for warning in load_policy(str(path)).warnings()] == [True]
    path.write_text(yaml.safe_dump({"policies": [entry(**SELECTIVE, restart_on_signals=["cancelled"])]}))
    assert ["cancelled" in warning for warning in load_policy(str(path)).warnings()] == [True]


def test_a_name_of_the_user_s_own_is_allowed_and_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    own: dict[str, Any] = {"restart_on_error_types": ["license_lost"], "restart_on_signals": ["our_storage_hiccup"]}
    path.write_text(yaml.safe_dump({"policies": [entry(**SELECTIVE, **own)]}))
    types, signals = load_policy(str(path)).warnings()
    assert types.startswith(f"{path}: mode crash: restart_on_error_types: 'license_lost' matches only")
    assert "expected one of the error types: auth_network, cancelled," in types
    assert "restart_on_signals: 'our_storage_hiccup'" in signals
    assert "docs/failures.md" in signals


def entry(mode: str = "crash", **implementation: object) -> dict[str, object]:
    return {"mode": mode, "implementation": implementation}


ALWAYS, NEVER = {"class_name": "AlwaysRestartPolicy"}, {"class_name": "NoRestartPolicy"}
SELECTIVE = {"class_name": "SelectiveRestartPolicy"}


MISTAKES: list[tuple[object, str]] = [
    ([], "policies: []"),
    ([entry(class_name="RestartPolicy")], "policies[0].implementation.class_name: 'RestartPolicy': expected"),
    ([entry(**ALWAYS, max_retries="3")], "policies[0].implementation.max_retries: '3': expected a valid integer"),
    ([entry(**ALWAYS, max_retries=True)], "policies[0].implementation.max_retries: True: expected"),
    ([entry(**ALWAYS, max_retries=2.5)], "policies[0].implementation.max_retries: 2.5: expected"),
    ([entry(**ALWAYS, exclude_error_types=["oom"])], "AlwaysRestartPolicy does not read exclude_error_types"),
    ([entry(**NEVER, max_retries=1)], "NoRestartPolicy does not read max_retries"),
    (
        [entry(**SELECTIVE, exclude_error_types=["oom", "nccl_timout"])],
        "implementation.exclude_error_types: 'nccl_timout': did you mean 'nccl_timeout'? Expected one of the",
    ),
    ([entry(**SELECTIVE, restart_on_subsystems=["distribted"])], "did you mean 'distributed'? Expected one of"),
    (
        [entry(**SELECTIVE, restart_on_signals=["peer_rest"])],
        "restart_on_signals: 'peer_rest': did you mean 'peer_res",
    ),
    ([entry("success", **ALWAYS)], "mode success: a finished run is never restarted"),
    ([entry(**ALWAYS), entry(**NEVER)], "more than one entry for mode crash"),
    ([{"mode": "crash"}], "policies[0].implementation: missing"),
    ([entry(**ALWAYS, restart_delay_seconds={"initial": -1})], "restart_delay_seconds.initial: -1: expected"),
    ([entry(**ALWAYS, restart_delay_seconds={"start": 1})], "restart_delay_seconds.start: unknown key"),
    ([entry(**ALWAYS, restart_delay_seconds={"initail": 1})], "seconds.initail: unknown key, expected initial?"),
    ("crash", "policies: 'crash': expected a valid list"),
]


def test_a_mistake_is_named_with_file_key_value_and_what_was_expected(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"

    def said(policies: object) -> str:
        path.write_text(yaml.safe_dump({"policies": policies}))
        return raised(ConfigError, lambda: load_policy(str(path)))

    found = [(policies, expected, said(policies)) for policies, expected in MISTAKES]
    assert_none(
        f"{policies}: {message!r}"
        for policies, expected, message in found
        if not message.startswith(f"{path}: ") or expected not in message
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("policies: [", "expected YAML"),
        ("policies: []\npolicies: []\n", "line 2: key policies: given twice, expected once"),
        ("!!python/object/apply:os.system [true]", "line 1: a tag that is not known"),
        ("\x00", "expected YAML"),
        ("", "line 1: the file: None: expected"),
    ],
)
def test_a_file_that_is_no_policy_at_all_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_policy(str(path))


def test_every_problem_is_named_with_its_own_line(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(FROM_A_USER.replace("max_retries: 5", "max_retry: 5").replace("- oom", "- [oom]"))
    with pytest.raises(ConfigError) as error:
        load_policy(str(path))
    unknown, wrong = sorted(error.value.problems, key=len)
    assert unknown == f"{path}: line 6: policies[0].implementation.max_retry: unknown key, expected max_retries?"
    assert wrong.startswith(f"{path}: line 16: policies[0].implementation.exclude_error_types[0]: ['oom']: expected")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"p\.yaml: No such file"):
        load_policy(str(tmp_path / "p.yaml"))


def test_a_policy_may_state_what_counts_as_a_complete_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(FROM_A_USER)
    assert load_policy(str(path)).checkpoint_trust is None
    path.write_text(f"checkpoints: {{trust: complete}}\n{FROM_A_USER}")
    assert load_policy(str(path)).checkpoint_trust == "complete"
    for wrong in ("{trust: all}", "{trusted: complete}", "complete", "{trust: [none]}"):
        path.write_text(f"checkpoints: {wrong}\n{FROM_A_USER}")
        with pytest.raises(ConfigError, match="checkpoints"):
            load_policy(str(path))
