"""The scenarios bite: a rule that is broken in a plausible way makes at least one of them fail."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rules.promtool import ROOT, behaviour, check
from tests.rules.scenarios import SCENARIOS
from trainwarden.stack.binaries import Tools

RULES = ROOT / "rules/alerts/runs.yml"


@dataclass(frozen=True)
class Mutation:
    """What is broken; whose scenarios notice; the text of the rules, and what it becomes."""

    name: str
    subject: str
    text: str
    instead: str


MUTATIONS = [
    Mutation(
        "the oldest record wins",
        "general",
        "topk by (run_id) (1,\n            max",
        "bottomk by (run_id) (1,\n            max",
    ),
    Mutation("a record without a start is none", "general", "or training_run_info * 0,", ","),
    Mutation("the attempt is no label", "general", "group_left (attempt)", "group_left ()"),
    Mutation(
        "any exporter may say running",
        "general",
        'training_run_state{state="running"} and on (instance, run_id) run:training_record:newest',
        'training_run_state{state="running"}',
    ),
    Mutation(
        "any exporter may say failed",
        "general",
        "training_run_state == 1 and on (instance, run_id) run:training_record:newest",
        "training_run_state == 1",
    ),
    Mutation(
        "ages by Prometheus' clock",
        "general",
        "run:training_observed_timestamp_seconds:max - run:training_life",
        "time() - run:training_life",
    ),
    Mutation(
        "S3 that is down accuses a run",
        "S3",
        "max by (run_id) (\n            training_run_observed_timestamp_seconds"
        " and on (instance, run_id) run:training_record:newest\n          )\n          or max by",
        "max by",
    ),
    Mutation("a lost scrape resolves", "general", "keep_firing_for: 10s", "keep_firing_for: 0s"),
    Mutation(
        "a stall is an advance",
        "TrainRunStalled",
        "run:training_motionless_seconds:current > ",
        "run:training_motionless_seconds:current < ",
    ),
    Mutation(
        "twice the budget",
        "TrainRunStalled",
        "run:training_motionless_seconds:current > ",
        "run:training_motionless_seconds:current > 2 * ",
    ),
    Mutation(
        "earlier attempts advance",
        "TrainRunStalled",
        "training_(step|step_change|phase_start|attempt_start)",
        "training_(step|step_change|phase_start)",
    ),
    Mutation(
        "other phases count",
        "TrainRunStalled",
        "training_(step|step_change|phase_start|attempt_start)",
        "training_(step|step_change|attempt_start)",
    ),
    Mutation("a loop that moves is a stall", "TrainRunStalled", "(step|step_change|phase", "(step|phase"),
    Mutation("a change of the step must be shown", "TrainRunStalled", "(step|step_change|phase", "(step_change|phase"),
    Mutation("a loop may circle for ever", "TrainRunStalled", "or run:training_circling_seconds:current", ""),
    Mutation(
        "what stands still circles too",
        "TrainRunStalled",
        "and on (run_id) run:training_motionless_seconds:current <= run:training_stall_threshold_seconds:current",
        "",
    ),
    Mutation("one budget for all phases", "TrainRunStalled", "and on (run_id, phase) run:training_phase:current", ""),
    Mutation("an unknown step is judged", "TrainRunStalled", "and on (run_id) run:training_advance:known", ""),
    Mutation(
        "the machine acts on an unknown step",
        "TrainRunStalled",
        'subsystem: distributed, remediate: "false"',
        'subsystem: distributed, remediate: "true"',
    ),
    Mutation(
        "silence is life",
        "TrainRunTimedOut",
        "run:training_silence_seconds:current > ",
        "run:training_silence_seconds:current < ",
    ),
    Mutation(
        "twice the silence",
        "TrainRunTimedOut",
        "run:training_silence_seconds:current > ",
        "run:training_silence_seconds:current > 2 * ",
    ),
    Mutation(
        "an earlier attempt's life", "TrainRunTimedOut", "training_(heartbeat|attempt_start)_", "training_(heartbeat)_"
    ),
    Mutation(
        "a vanished run is forgotten",
        "TrainRunTimedOut",
        "time() - (run:training_life_timestamp_seconds:last != 0)",
        "time() - (run:training_life_timestamp_seconds:max != 0)",
    ),
    Mutation(
        "a vanished run was running once",
        "TrainRunTimedOut",
        "or on (run_id) 0 * run:training_running:bool",
        "or on (run_id) run:training_life_timestamp_seconds:max",
    ),
    Mutation(
        "the memory of a run ends after an hour",
        "TrainRunTimedOut",
        "last_over_time(run:training_life_timestamp_seconds:last[1h])",
        "last_over_time(run:training_life_timestamp_seconds:max[1h])",
    ),
    Mutation("a vanished run is never forgotten", "TrainRunTimedOut", "time() - 24 * 3600", "time() - 240 * 3600"),
    Mutation(
        "the first attempt of a vanished run",
        "TrainRunTimedOut",
        "topk by (run_id) (1, last_over_time",
        "bottomk by (run_id) (1, last_over_time",
    ),
    Mutation("a short absence calls somebody", "TrainRunTimedOut", "for: 30s", "for: 0s"),
    Mutation(
        "the machine acts on missing telemetry",
        "TrainRunTimedOut",
        'subsystem: monitoring, remediate: "false"',
        'subsystem: monitoring, remediate: "true"',
    ),
    Mutation(
        "any attempt's verdict",
        "TrainRunFailed",
        "on (run_id, attempt) group_left (error_type, subsystem)\n            topk by (run_id, attempt)",
        "on (run_id) group_left (error_type, subsystem)\n            topk by (run_id)",
    ),
    Mutation(
        "no alert without a verdict", "TrainRunFailed", "\n          or on (run_id) run:training_attempt:identity", ""
    ),
    Mutation("failures of all times", "TrainRunFailed", ":max < 6 * 3600", ":max < 600 * 3600"),
    Mutation("successes of all times", "TrainRunSucceeded", ":max < 3600", ":max < 36000"),
    Mutation(
        "any age will do", "TrainRunNeverStarted", "(run:training_record:newest > 0)", "run:training_record:newest"
    ),
    Mutation("a rank is no sign of life", "TrainRunDegraded", "or training_rank_heartbeat_timestamp_seconds", ""),
    Mutation(
        "ranks of an earlier attempt are missed",
        "TrainRunDegraded",
        ">= on (run_id) group_left () max by (run_id) (run:training_record:newest)",
        "",
    ),
    Mutation("the ranks are one", "TrainRunDegraded", "min by (run_id, rank)", "min by (run_id)"),
    Mutation(
        "one alert for each rank",
        "TrainRunDegraded",
        "max by (run_id) (\n              run:training_heartbeat_silence",
        "max by (run_id, rank) (\n              run:training_heartbeat_silence",
    ),
    Mutation(
        "the loop may never be silent",
        "TrainRunDegraded",
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
    assert check(tools.promtool, tmp_path, [broken], SCENARIOS[mutation.subject])
