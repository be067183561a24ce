"""A kubectl that runs the command on this machine, and refuses arguments that the real one would refuse.

Its grammar is that of `kubectl exec (POD | TYPE/NAME) [-c CONTAINER] [flags] -- COMMAND [args...]` and of
`kubectl get TYPE [flags]`: flags of its own anywhere before the two dashes, with their value after `=` or as the next
argument.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

_PROGRAM = """#!{python} -IS
import json, os, sys
environment, rayjobs = {environment!r}, {rayjobs!r}
VALUED = {{"--namespace", "-n", "--container", "-c", "--context", "--kubeconfig", "--pod-running-timeout"}}
SWITCHES = {{"--stdin", "-i", "--tty", "-t", "--quiet", "-q", "-it"}}
def refuse(message):
    print("error: " + message, file=sys.stderr)
    sys.exit(1)
arguments = sys.argv[1:]
verb, own, command = arguments[:1], arguments[1:], []
if verb == ["exec"]:
    if "--" not in arguments:
        refuse("exec [POD] [COMMAND] is not supported anymore. Use exec [POD] -- [COMMAND] instead")
    middle = arguments.index("--")
    own, command = arguments[1:middle], arguments[middle + 1:]
    if not command:
        refuse("you must specify at least one command for the container")
elif verb == ["get"]:
    VALUED = {{"--namespace", "-n", "--context", "--kubeconfig", "--output", "-o", "--selector", "-l"}}
    SWITCHES = {{"--all-namespaces", "-A", "--no-headers", "--ignore-not-found"}}
else:
    refuse("unknown command")
output = ""
names = []
while own:
    first = own.pop(0)
    flag, equals, value = first.partition("=")
    if flag in VALUED:
        if not equals and not own:
            refuse("flag needs an argument: " + first)
        value = value if equals else own.pop(0)
        output = value if flag in ("--output", "-o") else output
        if flag in ("--namespace", "-n") and value not in ("default", "training"):
            refuse('namespaces "' + value + '" not found')
    elif first in SWITCHES:
        if first in ("--tty", "-t", "-it") and not sys.stdin.isatty():
            refuse("Unable to use a TTY - input is not a terminal")
    elif first.startswith("-"):
        refuse("unknown flag: " + first)
    else:
        names.append(first)
if verb == ["get"]:
    if len(names) != 1:
        refuse("Required resource not specified.")
    if names[0] not in ("rayjobs.ray.io", "rayjobs") or rayjobs is None:
        refuse("the server doesn't have a resource type \\"" + names[0].split(".")[0] + "\\"")
    if output != "json":
        refuse("unable to match a printer suitable for the output format " + repr(output))
    print(json.dumps({{"apiVersion": "v1", "kind": "List", "items": rayjobs}}))
    sys.exit(0)
if len(names) != 1:
    refuse("expected one pod, not " + repr(names))
if names[0] not in {pods!r}:
    refuse('Error from server (NotFound): pods "' + names[0] + '" not found')
environment["POD"] = names[0]
if not sys.stdin.isatty() and "--stdin" not in arguments[:middle] and "-i" not in arguments[:middle]:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
status = os.spawnvpe(os.P_WAIT, command[0], command, environment)
if status:
    print("command terminated with exit code", status, file=sys.stderr)
sys.exit(status)
"""


def write_kubectl(
    path: Path,
    environment: dict[str, str],
    pods: tuple[str, ...] = ("head-pod",),
    rayjobs: list[dict[str, Any]] | None = None,
) -> Path:
    """Write the program: each of `pods` is this machine, with these variables, and its own name in POD.

    `rayjobs` are the documents of the RayJobs; None where KubeRay is not installed.
    """
    text = _PROGRAM.format(python=sys.executable, environment=environment, pods=pods, rayjobs=rayjobs)
    path.write_text(text)
    path.chmod(0o755)
    return path
