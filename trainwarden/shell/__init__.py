"""The commands that shell scripts call: `heartbeat`, `phase`, `fail`, `complete`, and `trainwarden.sh`."""


def shell_init(arguments: list[str]) -> int:
    """`trainwarden shell-init`: print the path of trainwarden.sh; returns the exit status."""
    import os  # noqa: PLC0415
    import sys  # noqa: PLC0415

    if arguments in ([], ["--path"]):
        print(os.path.join(os.path.dirname(os.path.abspath(__file__)), "trainwarden.sh"))  # noqa: PTH100, PTH118, PTH120  # pathlib is slow to import
        return 0
    stream = sys.stdout if arguments in (["-h"], ["--help"]) else sys.stderr
    stream.write('usage: . "$(trainwarden shell-init)"\n')
    return 0 if stream is sys.stdout else 2
