"""What the taxonomy says of one way to fail, and the words it may use."""

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
# What is to be done next: by the remediator where it says restart, by a person where it says stop.
ACTIONS = ("stop", "restart", "check_node", "exclude_node", "roll_back", "wait")


# A shell command that tells of a failure has no time to load what dataclasses and typing are made of.
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
    """One way to fail.

    Attributes:
        slug: its name, in records, metrics and policies.
        error_type: the label that alerts and policies use; several slugs share one.
        category: what the training was busy with, one of `CATEGORIES`.
        subsystem: the part that reports it.
        fault: who or what most likely has to change, one of `FAULTS`.
        severity: one of `SEVERITIES`.
        action: what is to be done next, one of `ACTIONS`.
        retryable: the same job, started again, may well succeed.
        hint: what to change, for a person.
        retryable_in_process: the same call, made again in the same process, may well succeed. Narrower than
            `retryable`: a process whose GPU context or communicator has failed stays broken until it is started anew.
        cascade: mostly the consequence of a failure elsewhere; another one found beside it is the cause.
    """

    __slots__ = ()
