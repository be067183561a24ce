"""The process that verifies one checkpoint as the user whose record names it: `python -m … UID`, started by root.

Standard input is `{"path": hex of its bytes, "size": bytes or null}`, standard output the verdict or null.
"""

from __future__ import annotations

import json
import os
import pwd
import resource
import sys

from trainwarden.checkpoint import verify  # noqa: F401  # as root, who may read the program wherever it is
from trainwarden_exporter.collectors.runs.checkpoints import TIMEOUT_SECONDS, look

# A user without an entry is in no group.
_NO_GROUP = 65534
_NICE = 10


def main() -> int:
    """Become the user, verify, and answer."""
    question = json.loads(sys.stdin.buffer.read())
    become(int(sys.argv[1]))
    verdict = look(os.fsdecode(bytes.fromhex(question["path"])), question["size"])
    json.dump(verdict and {"answer": verdict.answer, "evidence": verdict.evidence}, sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # a thread that hangs in a file system would hold the end up


def become(uid: int) -> None:
    """Give up the rights of root for those of a user, for good."""
    try:
        entry = pwd.getpwuid(uid)
        group, groups = entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid)
    except KeyError:
        group, groups = _NO_GROUP, []
    resource.setrlimit(resource.RLIMIT_CPU, (int(TIMEOUT_SECONDS), int(TIMEOUT_SECONDS) + 1))
    os.nice(_NICE)
    os.setgroups(groups)
    os.setresgid(group, group, group)
    os.setresuid(uid, uid, uid)


if __name__ == "__main__":
    sys.exit(main())
