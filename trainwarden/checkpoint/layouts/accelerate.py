"""accelerate's `save_state`: the states of the random generators are written last, one for each process."""

from __future__ import annotations

import re

from trainwarden.checkpoint.contents import CheckpointFiles
from trainwarden.checkpoint.verdict import Findings

_RANDOM = re.compile(r"random_states_([0-9]{1,7})\.pkl")
_OTHERS = re.compile(r"(optimizer|scheduler|sampler|dl_state_dict|custom_checkpoint|scaler)(_[0-9]+)*\.(bin|pt|pkl)")


def check(contents: CheckpointFiles) -> Findings:
    """Check folders with `random_states_R.pkl`."""
    report = Findings()
    names = contents.folders.get("", set())
    ranks = [int(match[1]) for match in map(_RANDOM.fullmatch, names) if match]
    if not ranks:
        return report
    report.layouts.append("accelerate")
    report.claimed.update(name for name in names if _OTHERS.fullmatch(name))
    contents.require(report, [f"random_states_{rank}.pkl" for rank in range(max(ranks) + 1)], "accelerate saves last")
    # The checkpoint does not record which objects were passed to accelerate, nor the number of processes.
    report.doubts.append("how many optimizers, schedulers and processes it was saved from is not known")
    return report
