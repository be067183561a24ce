"""The scenarios bite: a rule that is broken in a plausible way makes at least one of them fail."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rules.promtool import ROOT, behaviour, check
from tests.rules.scenarios import SCENARIOS
from trainwarden.stack.binaries import Tools

# It proves the scenarios, not the rules.
pytestmark = pytest.mark.long
RULES = ROOT / "rules/alerts/runs.yml"


@dataclass(frozen=True)
class Mutation:
    """What is broken; the scenario that notices, and whose it is; the text of the rules, and what it becomes."""

    name: str
    subject: str
    scenario: str
    text: str
    instead: str


MUTATIONS = [
    Mutation(
        "the oldest record wins",
        "general",
        "a run that has moved to another host carries that host's labels",
        "topk by (run_id) (1,\n            max",
        "bottomk by (run_id) (1,\n            max",
    ),
    Mutation(
        "a record without a start is none",
        "general",
        "a record that knows neither job nor attempt still raises alerts",
        "or training_run_info * 0,",
        ",",
    ),
    Mutation(
        "the attempt is no label",
        "general",
        "a run that has moved to another host carries that host's labels",
        "group_left (attempt)",
        "group_left ()",
    ),
    Mutation(
        "any exporter may say running",
        "general",
        "a run that was cancelled on another host than where an old folder says running",
        'training_run_state{state="running"} and on (instance, run_id) run:training_record:newest',
        'training_run_state{state="running"}',
    ),
    Mutation(
        "any exporter may say failed",
        "general",
        "a run on another host than before, whose old folder says failed and silent, is judged by the new one",
        "training_run_state == 1 and on (instance, run_id) run:training_record:newest",
        "training_run_state == 1",
    ),
    Mutation(
        "ages by Prometheus' clock",
        "general",
        "a host whose clock is far behind Prometheus' raises nothing while its run is healthy",
        "run:training_observed_timestamp_seconds:max - run:training_life",
        "time() - run:training_life",
    ),
    Mutation(
        "S3 that is down accuses a run",
        "S3",
        "S3 answers again and the run has been silent",
        "max by (run_id) (\n            training_run_observed_timestamp_seconds"
        " and on (instance, run_id) run:training_record:newest\n          )\n          or max by",
        "max by",
    ),
    Mutation(
        "a lost scrape resolves",
        "general",
        "one lost scrape does not resolve an alert",
        "keep_firing_for: 10s",
        "keep_firing_for: 0s",
    ),
    Mutation(
        "a stall is an advance",
        "TrainRunStalled",
        "a step that stands still for longer than its budget",
        "run:training_motionless_seconds:current > ",
        "run:training_motionless_seconds:current < ",
    ),
    Mutation(
        "twice the budget",
        "TrainRunStalled",
        "a step that stands still for longer than its budget",
        "run:training_motionless_seconds:current > ",
        "run:training_motionless_seconds:current > 2 * ",
    ),
    Mutation(
        "earlier attempts advance",
        "TrainRunStalled",
        "times from before the attempt count as its start",
        "training_(step|step_change|phase_start|attempt_start)",
        "training_(step|step_change|phase_start)",
    ),
    Mutation(
        "other phases count",
        "TrainRunStalled",
        "time spent in another phase does not count",
        "training_(step|step_change|phase_start|attempt_start)",
        "training_(step|step_change|attempt_start)",
    ),
    Mutation(
        "a loop that moves is a stall",
        "TrainRunStalled",
        "and is a stall once it stands still",
        "(step|step_change|phase",
        "(step|phase",
    ),
    Mutation(
        "a change of the step must be shown",
        "TrainRunStalled",
        "an exporter that does not show changes of the step is believed in its advances",
        "(step|step_change|phase",
        "(step_change|phase",
    ),
    Mutation(
        "a loop may circle for ever",
        "TrainRunStalled",
        "and is a stall once it stands still",
        "or run:training_circling_seconds:current",
        "",
    ),
    Mutation(
        "what stands still circles too",
        "TrainRunStalled",
        "and is a stall once it stands still",
        "and on (run_id) run:training_motionless_seconds:current <= run:training_stall_threshold_seconds:current",
        "",
    ),
    Mutation(
        "one budget for all phases",
        "TrainRunStalled",
        "a train phase without any known step calls a person, not the machine",
        "and on (run_id, phase) run:training_phase:current",
        "",
    ),
    Mutation(
        "an unknown step is judged",
        "TrainRunStalled",
        "a train phase without any known step calls a person, not the machine",
        "and on (run_id) run:training_advance:known",
        "",
    ),
    Mutation(
        "the machine acts on an unknown step",
        "TrainRunStalled",
        "a train phase without any known step calls a person, not the machine",
        'subsystem: distributed, remediate: "false"',
        'subsystem: distributed, remediate: "true"',
    ),
    Mutation(
        "silence is life",
        "TrainRunTimedOut",
        "a run that is silent in a phase without a budget",
        "run:training_silence_seconds:current > ",
        "run:training_silence_seconds:current < ",
    ),
    Mutation(
        "twice the silence",
        "TrainRunTimedOut",
        "a run that is silent in a phase without a budget",
        "run:training_silence_seconds:current > ",
        "run:training_silence_seconds:current > 2 * ",
    ),
    Mutation(
        "an earlier attempt's life",
        "TrainRunTimedOut",
        "heartbeats from before the attempt count as its start",
        "training_(heartbeat|attempt_start)_",
        "training_(heartbeat)_",
    ),
    Mutation(
        "a vanished run is forgotten",
        "TrainRunTimedOut",
        "a run that failed, came back and then vanished with its exporter",
        "time() - (run:training_life_timestamp_seconds:last != 0)",
        "time() - (run:training_life_timestamp_seconds:max != 0)",
    ),
    Mutation(
        "a vanished run was running once",
        "TrainRunTimedOut",
        "a run that had finished before its exporter went is left alone",
        "or on (run_id) 0 * run:training_running:bool",
        "or on (run_id) run:training_life_timestamp_seconds:max",
    ),
    Mutation(
        "the memory of a run ends after an hour",
        "TrainRunTimedOut",
        "a run that had finished before its exporter went is left alone",
        "last_over_time(run:training_life_timestamp_seconds:last[1h])",
        "last_over_time(run:training_life_timestamp_seconds:max[1h])",
    ),
    Mutation(
        "a vanished run is never forgotten",
        "TrainRunTimedOut",
        "it stays a person's business until a day after its last sign of life",
        "time() - 24 * 3600",
        "time() - 240 * 3600",
    ),
    Mutation(
        "the first attempt of a vanished run",
        "TrainRunTimedOut",
        "a run of two attempts that vanished is called by the newer one",
        "topk by (run_id) (1, last_over_time",
        "bottomk by (run_id) (1, last_over_time",
    ),
    Mutation(
        "a short absence calls somebody",
        "TrainRunTimedOut",
        "a run that vanished with its exporter calls a person, not the machine",
        "for: 30s",
        "for: 0s",
    ),
    Mutation(
        "the machine acts on missing telemetry",
        "TrainRunTimedOut",
        "a run that failed, came back and then vanished with its exporter",
        'subsystem: monitoring, remediate: "false"',
        'subsystem: monitoring, remediate: "true"',
    ),
    Mutation(
        "any attempt's verdict",
        "TrainRunFailed",
        "the verdict on another attempt is not used",
        "on (run_id, attempt) group_left (error_type, subsystem)\n            topk by (run_id, attempt)",
        "on (run_id) group_left (error_type, subsystem)\n            topk by (run_id)",
    ),
    Mutation(
        "no alert without a verdict",
        "TrainRunFailed",
        "a failed run without a verdict",
        "\n          or on (run_id) run:training_attempt:identity",
        "",
    ),
    Mutation(
        "failures of all times",
        "TrainRunFailed",
        "an old failed record is silent from the start",
        ":max < 6 * 3600",
        ":max < 600 * 3600",
    ),
    Mutation(
        "successes of all times",
        "TrainRunSucceeded",
        "an old finished record is silent from the start",
        ":max < 3600",
        ":max < 36000",
    ),
    Mutation(
        "any age will do",
        "TrainRunNeverStarted",
        "a record of unknown age is not judged",
        "(run:training_record:newest > 0)",
        "run:training_record:newest",
    ),
    Mutation(
        "a rank is no sign of life",
        "TrainRunDegraded",
        "one rank alone keeps a run from having timed out",
        "or training_rank_heartbeat_timestamp_seconds",
        "",
    ),
    Mutation(
        "ranks of an earlier attempt are missed",
        "TrainRunDegraded",
        "a rank that is gone after a restart is not missed",
        ">= on (run_id) group_left () max by (run_id) (run:training_record:newest)",
        "",
    ),
    Mutation("the ranks are one", "TrainRunDegraded", "a rank is silent", "min by (run_id, rank)", "min by (run_id)"),
    Mutation(
        "one alert for each rank",
        "TrainRunDegraded",
        "a rank is silent",
        "max by (run_id) (\n              run:training_heartbeat_silence",
        "max by (run_id, rank) (\n              run:training_heartbeat_silence",
    ),
    Mutation(
        "the loop may never be silent",
        "TrainRunDegraded",
        "the loop may be silent outside the train phase",
        '          and on (run_id) run:training_phase:current{phase="train"}\n',
        "",
    ),
]


@pytest.mark.tools
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_broken_rule_is_noticed(tools: Tools, tmp_path: Path, mutation: Mutation) -> None:
    rules = RULES.read_text(encoding="utf-8")
    assert mutation.text in rules, "the rule has changed: change the mutation with it"
    broken = behaviour(rules.replace(mutation.text, mutation.instead))
    noticed = [scenario for scenario in SCENARIOS[mutation.subject] if scenario.name == mutation.scenario]
    assert noticed, "the scenario has another name"
    assert check(tools.promtool, tmp_path, [broken], noticed)
