"""Policy files that a project has already: they load as they are, and decide as they did in that project's own tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cases import cases
from trainwarden_remediator.decide.decide import AlertedFailure, Nothing, Restart, StopAndPage, decide
from trainwarden_remediator.decide.verdict import Wait
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.incidents.history import History
from trainwarden_remediator.incidents.incident import Action
from trainwarden_remediator.policies.policy import Policy, load_policy
from trainwarden_remediator.policies.policy_file import Implementation

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.seed("Monitoring and Automatic Restart", "Configuration Reference")

NETWORK = ["hang", "nccl_timeout", "distributed_timeout", "watchdog_timeout"]


def always(retries: int, reason: str) -> dict[str, Any]:
    return {"class_name": "AlwaysRestartPolicy", "reason": reason, "max_retries": retries}


def never(message: str | None = None) -> dict[str, Any]:
    return {"class_name": "NoRestartPolicy", **({"message": message} if message else {})}


def selective(retries: int, default: str, **lists: list[str]) -> dict[str, Any]:
    return {
        "class_name": "SelectiveRestartPolicy",
        "max_retries": retries,
        "restart_reason": "looks transient, start again",
        "stop_reason": "will not heal by itself, stop",
        "default_action": default,
        **lists,
    }


# As one project has them: keys, lists and budgets; the words are ours.
FILES: dict[str, dict[str, dict[str, Any]]] = {
    "default": {"stall": always(3, "a stall"), "crash": always(2, "a crash"), "success": never()},
    "megatron_transient": {
        "crash": selective(
            3,
            "restart",
            restart_on_error_types=[
                *("hang", "deadlock", "nccl", "nccl_timeout", "distributed_timeout", "communication"),
                *("watchdog_timeout", "nccl_collective", "cancelled", "slurm_failure"),
            ],
            restart_on_subsystems=["distributed", "slurm"],
            restart_on_signals=[
                *("cuda_hang", "deadlock", "nccl_error", "nccl_timeout"),
                *("processgroup_timeout", "communication_error"),
            ],
            exclude_error_types=["oom", "exception", "torch", "numerical_instability"],
        ),
        "stall": always(2, "no progress"),
        "timeout": always(1, "out of time"),
        "success": never("done"),
    },
    "megatron_aggressive": {
        "crash": selective(5, "restart", exclude_error_types=["oom", "exception"]),
        "stall": always(3, "no progress"),
        "timeout": always(2, "out of time"),
        "success": never("done"),
    },
    "megatron_conservative": {
        "crash": selective(
            2,
            "stop",
            restart_on_error_types=NETWORK,
            restart_on_signals=["cuda_hang", "nccl_timeout", "processgroup_timeout"],
        ),
        "stall": always(1, "no progress, once"),
        "timeout": never("a person looks into time-outs"),
        "success": never("done"),
    },
}
# `torch` is not among them: here it is one type with `exception`, and no failure is reported by that name.
KINDS = [
    *("oom", "hang", "deadlock", "nccl", "nccl_timeout", "distributed_timeout", "communication", "watchdog_timeout"),
    *("slurm_failure", "numerical_instability", "exception", None),
]


def decided(failure: AlertedFailure, history: History, policy: Policy, now: float) -> Restart | StopAndPage | Nothing:
    decision = decide(failure, history, policy, now)
    assert not isinstance(decision, Wait)
    return decision


def as_there(rule: dict[str, Any] | None, kind: str | None, subsystem: str | None, used: int) -> bool:
    """Whether that project's tool restarts: budget, exclusion, inclusion, default; nothing without a rule."""
    if rule is None or rule["class_name"] == "NoRestartPolicy" or used >= rule["max_retries"]:
        return False
    if rule["class_name"] == "AlwaysRestartPolicy":
        return True
    if kind in rule.get("exclude_error_types", ()):
        return False
    listed = kind in rule.get("restart_on_error_types", ()) or subsystem in rule.get("restart_on_subsystems", ())
    return listed or rule["default_action"] == "restart"


def write(path: Path, document: object) -> str:
    path.write_text(yaml.safe_dump(document))
    return str(path)


def entries(rules: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"mode": mode, "implementation": rule} for mode, rule in rules.items()]


@cases("name", FILES)
def test_each_file_of_a_real_project_decides_as_it_did_there(tmp_path: Path, name: str) -> None:
    policy = load_policy(write(tmp_path / f"{name}.yaml", {"policies": entries(FILES[name])}))
    for mode in ("crash", "stall", "timeout", "success"):
        rule = FILES[name].get(mode)
        for used in range(7):
            for kind in KINDS:
                for subsystem in (None, "distributed"):
                    decision = decided(AlertedFailure(mode, kind, subsystem), History({mode: used}), policy, 0)
                    restarts = decision.action is Action.RESTART
                    assert restarts == as_there(rule, kind, subsystem, used), (mode, kind, subsystem, used)


def test_the_words_of_the_file_begin_the_reason_and_the_facts_follow(tmp_path: Path) -> None:
    policy = load_policy(write(tmp_path / "p.yaml", {"policies": entries(FILES["megatron_transient"])}))

    def reason(mode: str, kind: str) -> str:
        return decided(AlertedFailure(mode, kind), History({}), policy, 0).reason

    assert reason("crash", "nccl") == "looks transient, start again (policy p restarts after errors of the type nccl)"
    assert reason("crash", "oom").startswith("will not heal by itself, stop (the error type oom is excluded")
    assert reason("stall", "hang") == "no progress (policy p restarts after every stall)"
    assert reason("success", "") == "done (policy p never restarts after a success)"


@cases("words", ["a" * 201, "", 3])
def test_the_words_are_bounded(tmp_path: Path, words: object) -> None:
    rule = {"class_name": "AlwaysRestartPolicy", "reason": words}
    with pytest.raises(ConfigError, match=r"policies\[0\].implementation.reason: "):
        load_policy(write(tmp_path / "p.yaml", {"policies": entries({"crash": rule})}))


def test_the_words_are_one_printable_line_and_no_template(tmp_path: Path) -> None:
    rule = {"class_name": "AlwaysRestartPolicy", "reason": "once\nmore \x1b[31m{0.__class__} ${oc.env:HOME} %s"}
    policy = load_policy(write(tmp_path / "p.yaml", {"policies": entries({"crash": rule})}))
    reason = decided(AlertedFailure("crash"), History({}), policy, 0).reason
    assert reason.startswith("once more  [31m{0.__class__} ${oc.env:HOME} %s (policy p ")


@cases(
    ("rule", "said"),
    [
        ({**always(1, "r"), "stop_reason": "s"}, "AlwaysRestartPolicy does not read stop_reason"),
        ({**selective(1, "stop"), "reason": "r"}, "SelectiveRestartPolicy does not read reason"),
        ({**never("m"), "reason": "r"}, "NoRestartPolicy does not read reason"),
    ],
)
def test_words_that_a_class_does_not_read_are_named(tmp_path: Path, rule: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_policy(write(tmp_path / "p.yaml", {"policies": entries({"crash": rule})}))


def test_a_bare_class_holds_for_every_failure_mode_and_never_for_a_success(tmp_path: Path) -> None:
    policy = load_policy(write(tmp_path / "p.yaml", selective(5, "stop", restart_on_error_types=["nccl"])))
    assert set(policy.rules) == {"crash", "stall", "timeout"}
    assert decided(AlertedFailure("stall", "nccl"), History({}), policy, 0).action is Action.RESTART
    assert decided(AlertedFailure("stall", "oom"), History({}), policy, 0).action is Action.NONE


def test_a_mistake_in_a_bare_class_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("class_name: AlwaysRestartPolicy\nmax_retrys: 2\n")
    with pytest.raises(ConfigError, match=r"line 2: max_retrys: unknown key, expected max_retries\?"):
        load_policy(str(path))


@cases("key", ["restart_policies", "restart"])
def test_the_policies_of_a_whole_project_file_are_found_under_its_own_key(tmp_path: Path, key: str) -> None:
    listed = entries(FILES["default"])
    document = {
        "defaults": [{"slurm": "base"}, "_self_"],
        "slurm": {"partition": "gpu"},
        key: {"policies": listed} if key == "restart" else listed,
    }
    assert load_policy(write(tmp_path / "p.yaml", document)).rules["crash"].max_retries == 2


def composed(folder: Path, *defaults: object, **own: object) -> dict[str, Implementation]:
    (folder / "restart").mkdir(exist_ok=True)
    write(folder / "base.yaml", {"policies": entries({"crash": always(7, "base"), "stall": always(8, "base")})})
    write(folder / "restart" / "chosen.yaml", {"policies": entries({"crash": always(9, "chosen")})})
    write(folder / "experiment.yaml", {"defaults": [{"/restart": "base"}], "lr": 0.1})
    return dict(load_policy(write(folder / "mine.yaml", {"defaults": list(defaults), **own})).rules)


OWN = {"policies": entries({"crash": always(1, "own")})}


@cases(
    ("defaults", "own", "crash", "stall"),
    [
        (["base"], {}, 7, 8),
        (["base"], OWN, 1, 8),
        (["base", "_self_"], OWN, 1, 8),
        (["_self_", "base"], OWN, 7, 8),
        (["base@_here_", {"/restart@_global_": "chosen"}], {}, 9, 8),
        ([{"restart": "base"}, {"override /restart": "chosen"}], {}, 9, None),
        (["experiment", {"override /restart": "chosen"}], {}, 9, None),
        (["experiment"], {}, 7, 8),
        ([{"/restart": ["base", "chosen"]}], {}, 9, 8),
        (["restart/chosen", {"sweep": "none"}, {"/restart": None}], {}, 9, None),
        (["megatron_production", {"/restart": "megatron_conservative"}], {}, 2, 1),
    ],
)
def test_defaults_are_composed_as_hydra_does(
    tmp_path: Path, defaults: list[object], own: dict[str, object], crash: int, stall: int | None
) -> None:
    rules = composed(tmp_path, *defaults, **own)
    assert rules["crash"].max_retries == crash
    assert (rules["stall"].max_retries if "stall" in rules else None) == stall


def test_a_list_that_chooses_no_policy_restarts_nothing_with_a_warning(tmp_path: Path) -> None:
    """A project that is only watched; what it states itself holds."""
    watched = load_policy(
        write(tmp_path / "watched.yaml", {"defaults": [{"/monitoring": "megatron_production"}], "lr": 1})
    )
    assert (watched.rules, watched.restarts) == ({}, False)
    [warning] = watched.warnings()
    assert "it names no policy" in warning
    own = load_policy(write(tmp_path / "own.yaml", {"defaults": [{"/monitoring": "x"}], **OWN}))
    assert own.rules["crash"].max_retries == 1


@cases(
    "document",
    [
        {"defaults": [{"/restrat": "megatron_transient"}]},
        {"defaults": [{"/monitoring": "x"}], "polices": []},
        {"defaults": [{"/monitoring": "x"}], "restart_policy": []},
        {"defaults": "megatron_transient"},
        {"defaults": []},
    ],
)
def test_what_may_be_misspelt_is_no_list_without_a_policy(tmp_path: Path, document: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="policies: missing"):
        load_policy(write(tmp_path / "mine.yaml", document))


def test_a_file_that_is_not_there_is_no_policy_without_rules(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="defaults: 'bases': there is no such file beside it, and no such policy"):
        composed(tmp_path, "bases")


def test_files_that_name_each_other_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", {"defaults": ["b"]})
    with pytest.raises(ConfigError, match=r"b\.yaml|a\.yaml: defaults: extends itself"):
        load_policy(write(tmp_path / "b.yaml", {"defaults": ["a"]}))


def test_a_choice_that_is_nowhere_is_named_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").write_text("class_name: AlwaysRestartPolicy\n")  # in the working directory: not beside the file
    (tmp_path / "conf").mkdir()
    file = write(tmp_path / "conf" / "mine.yaml", {"defaults": [{"/restart": "gone"}]})
    with pytest.raises(ConfigError) as refused:
        load_policy(file)
    expected = f"{file}: defaults: restart: 'gone': there is no such file beside it, and no such policy"
    assert refused.value.problems == (expected,)


def test_links_in_a_circle_are_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    with pytest.raises(ConfigError, match=r"loop\.yaml: Too many levels of symbolic links"):
        load_policy(str(tmp_path / "loop.yaml"))
