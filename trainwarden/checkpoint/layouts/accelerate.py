"""accelerate's `save_state`: the states of random numbers come last, one for each process."""

import re

from trainwarden.checkpoint.contents import Contents
from trainwarden.checkpoint.verdict import Report

_RANDOM = re.compile(r"random_states_([0-9]{1,7})\.pkl")
_OTHERS = re.compile(r"(optimizer|scheduler|sampler|dl_state_dict|custom_checkpoint|scaler)(_[0-9]+)*\.(bin|pt|pkl)")


def look(contents: Contents) -> Report:
    """Folders with `random_states_R.pkl`."""
    report = Report()
    names = contents.folders.get("", set())
    ranks = [int(match[1]) for match in map(_RANDOM.fullmatch, names) if match]
    if not ranks:
        return report
    report.layouts.append("accelerate")
    report.claimed.update(name for name in names if _OTHERS.fullmatch(name))
    contents.require(report, [f"random_states_{rank}.pkl" for rank in range(max(ranks) + 1)], "accelerate saves last")
    # Which of a training's objects were handed to accelerate, and by how many processes, is written nowhere.
    report.doubts.append("how many optimizers, schedulers and processes it was saved from is not known")
    return report
