"""The remediator's guide says what the remediator does."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.offenders import assert_none
from trainwarden.server.web_config import ReloadingWebConfig
from trainwarden_remediator.act.sweep import Sweeper
from trainwarden_remediator.canary_job.canary_job import CanaryHealings
from trainwarden_remediator.cli import parser
from trainwarden_remediator.database.database import open_database
from trainwarden_remediator.decide.decide import AlertedFailure, Nothing, Restart, StopAndPage, decide
from trainwarden_remediator.decide.verdict import Wait
from trainwarden_remediator.examine.recoverability import Outlook
from trainwarden_remediator.incidents.history import History
from trainwarden_remediator.incidents.incident import Action, State
from trainwarden_remediator.incidents.webhook import Delivery
from trainwarden_remediator.metrics import GpuHours, Metrics, RemediatorCollector
from trainwarden_remediator.notify.notify import Notifier
from trainwarden_remediator.notify.outbox import Outbox
from trainwarden_remediator.observe.records import Records
from trainwarden_remediator.observe.world import SystemClock, World
from trainwarden_remediator.policies.limits import DAYS, ExcludeNodes, Limits, Window
from trainwarden_remediator.policies.policy import Policy, load_policy, shipped
from trainwarden_remediator.policies.policy_file import Backoff, Implementation, ModePolicy, PolicyFile
from trainwarden_remediator.store.score import Scores
from trainwarden_remediator.store.store import Store
from trainwarden_remediator.store.timers import Timers

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "remediator.md").read_text(encoding="utf-8")


def decided(failure: AlertedFailure, history: History, policy: Policy, now: float) -> Restart | StopAndPage | Nothing:
    decision = decide(failure, history, policy, now)
    assert not isinstance(decision, Wait)
    return decision


def section(title: str) -> str:
    return GUIDE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def first_cells(title: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)`", section(title), re.MULTILINE)


def flags() -> set[str]:
    """The flags of the service, by its help."""
    options = re.findall(r"^  (-.+?)(?:  |$)", parser().format_help(), re.MULTILINE)
    return {flag for option in options for flag in re.findall(r"--[\w.-]+", option)}


def default(flag: str) -> str:
    """The default of a flag: what it is where nothing is given."""
    taken = vars(parser().parse_args([]))
    name = re.sub(r"[-.]", "_", flag[2:])
    return str(taken[name] if name in taken else taken[name.removeprefix("web_")])


def test_every_flag_is_documented_and_every_documented_flag_exists() -> None:
    assert set(re.findall(r"`(--[\w.-]+)`", section("Flags"))) == flags()


def test_the_documented_defaults_are_the_real_ones() -> None:
    rows = dict(re.findall(r"^\| `(--[\w.-]+)` \| `([^`|]*)` \|", section("Flags"), re.MULTILINE))
    assert "--poll-interval" in rows
    assert_none(
        f"remediator.md: {flag} {stated}, in truth {default(flag)}"
        for flag, stated in rows.items()
        if flag != "--slurm-bin-dir" and default(flag) != stated
    )


def test_every_flag_that_the_text_names_exists() -> None:
    of_other_programs = {
        *("--requeue", "--comment", "--json", "--no-requeue", "--jobs", "--states", "--deadline", "--hold"),
        *("--run-id", "--http.config.file", "--dependency", "--partition", "--name"),
        *("--every", "--resubmit-after", "--sbatch-option", "--train"),  # of canary
        *("--all", "--for", "--reason", "--expect", "--since", "--array", "--log", "--mode", "--format"),  # of commands
    }
    assert set(re.findall(r"`?(--[a-z][\w.-]+)", GUIDE)) - of_other_programs <= flags()


def test_every_state_is_explained() -> None:
    assert first_cells("States of an incident") == [state.value for state in State]


def test_every_key_of_a_policy_is_explained_and_no_other() -> None:
    keys = set(ModePolicy.model_fields) | set(Implementation.model_fields)
    cells = re.findall(r"^\| (`[^|]+`) \| (?:(?:Always|Selective|No)(?:, )?)* ?\|", section("Policies"), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == keys - {"implementation"}
    delay = next(line for line in section("Policies").splitlines() if line.startswith("| `restart_delay_seconds`"))
    assert all(f"`{key}`" in delay for key in Backoff.model_fields)


def test_the_example_policy_is_valid_and_shows_every_key() -> None:
    example = yaml.safe_load(section("Policies").partition("```yaml\n")[2].partition("```")[0])
    checked = PolicyFile.model_validate(example).policies[0].implementation
    shown = {key for entry in example["policies"] for key in entry["implementation"]}
    assert shown == set(Implementation.model_fields)
    assert checked.restart_delay_seconds is not None


def test_every_limit_is_explained_and_the_example_is_valid() -> None:
    text = section("Policies").partition("### Limits")[2].partition("\n### ")[0]
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == list(Limits.model_fields)
    example = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])["limits"]
    assert set(example) == set(Limits.model_fields)
    assert Limits.model_validate(example).maintained_until(0.0) is None
    keys = {key for model in (ExcludeNodes, Window) for key in model.model_fields}
    assert [key for key in keys if not re.search(rf"\b{key}\b", text)] == []
    assert all(f"`{day}`" in text for day in (DAYS[0], DAYS[-1]))


def restarts(policy: Policy, mode: str) -> int:
    """How often the policy restarts a run that always hangs, in one failure mode."""
    count = 0
    while decided(AlertedFailure(mode, "hang"), History({mode: count}), policy, 0).action is Action.RESTART:
        count += 1
    return count


def budgets(name: str) -> list[int]:
    """Return how often the table says that a policy restarts a run after a crash, a stall and a timeout."""
    rows = [line for line in section("Policies").splitlines() if line.startswith("| `")]
    [row] = [line for line in rows if f"`{name}`" in line.split("|")[1]]
    cells = [re.match(r"\d+|no", cell.strip()) for cell in row.split("|")[2:5]]
    return [0 if cell is None or cell[0] == "no" else int(cell[0]) for cell in cells]


def test_the_table_of_policies_gives_their_real_budgets() -> None:
    real = {name: [restarts(load_policy(name), mode) for mode in ("crash", "stall", "timeout")] for name in shipped()}
    assert {name: budgets(name) for name in real} == real


def test_every_metric_is_documented_with_its_labels(tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text("rate_limit: {interval: 1s}\n")
    web_config = ReloadingWebConfig(tmp_path / "web.yml")
    metrics = Metrics()
    metrics.received(200, 1.0)
    metrics.delivered(Delivery("", (), 0, watchdog=True), 1.0)
    metrics.polled(1.0, None)
    metrics.ticked(1.0, success=True)
    engine = open_database(tmp_path)
    clock = SystemClock()
    notifier = Notifier(Outbox(engine, clock, ["slack"]), [], monotonic=clock.monotonic)
    scores = Scores(engine, clock, None)  # type: ignore[arg-type]  # for the metric alone
    outlook = Outlook(None, None)  # type: ignore[arg-type]  # likewise
    more = [notifier.families, scores.families, GpuHours(engine).families, outlook.families]
    more.append(CanaryHealings(engine, clock, expected=True).families)
    store = Store(engine, clock)
    world = World(clock, None, None, {}, Records(None))  # type: ignore[arg-type]  # likewise
    more.append(Sweeper(world, store, Timers(store.transactions, clock), doubt_window=1).families)
    collector = RemediatorCollector(metrics, store, web_config, more=more)
    real = {}
    for family in collector.collect():
        labels = getattr(family, "_labelnames", ())
        name = f"{family.name}_total" if family.type == "counter" else family.name
        real[name] = set(labels)
    engine.dispose()
    documented = re.findall(r"^\| `(\w+)(?:\{([^}]*)\})?`", section("Metrics"), re.MULTILINE)
    assert {name: set(labels.split(",")) if labels else set() for name, labels in documented} == real
