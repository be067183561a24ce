"""One entry of the taxonomy, and the values that its fields may have."""

from collections import namedtuple

CATEGORIES = (
    "data_loading",
    "model_creation",
    "training",
    "memory",
    "checkpoint",
    "network",
    "configuration",
    "unknown",
)
FAULTS = ("hardware", "network", "user", "configuration", "scheduler", "unknown")
SEVERITIES = ("warning", "error", "critical", "fatal")
# The next action: `restart` by the remediator, `stop` by a person.
ACTIONS = ("stop", "restart", "check_node", "exclude_node", "roll_back", "wait")


# Imported by shell commands, whose start-up time does not allow dataclasses and typing.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class _Fields(NamedTuple):
        slug: str
        error_type: str
        category: str
        subsystem: str
        fault: str
        severity: str
        action: str
        retryable: bool
        hint: str
        retryable_in_process: bool = False
        cascade: bool = False
else:
    _Fields = namedtuple(  # typed above
        "_Fields",
        (
            "slug",
            "error_type",
            "category",
            "subsystem",
            "fault",
            "severity",
            "action",
            "retryable",
            "hint",
            "retryable_in_process",
            "cascade",
        ),
        defaults=(False, False),
    )


class Failure(_Fields):
    """One failure.

    Attributes:
        slug: its name, in records, metrics and policies.
        error_type: the label that alerts and policies use; several slugs share one.
        category: the part of the training that failed, one of `CATEGORIES`.
        subsystem: the part that reports it.
        fault: what most likely has to change, one of `FAULTS`.
        severity: one of `SEVERITIES`.
        action: the next action, one of `ACTIONS`.
        retryable: the same job, started again, may well succeed.
        hint: what a person should change.
        retryable_in_process: the same call, made again in the same process, may well succeed. Narrower than
            `retryable`: a process whose GPU context or communicator has failed stays broken until it is started anew.
        cascade: mostly the consequence of a failure elsewhere; another failure found with it is the cause.
    """

    __slots__ = ()
