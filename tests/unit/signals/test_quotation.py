"""Code, commands, arguments and settings that a log quotes accuse nobody, whatever words they contain."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import cases
from tests.unit.signals.verdicts import in_log, in_output, new_scanner
from trainwarden.classify import classify_message
from trainwarden.exec.outcome import command_outcome
from trainwarden.exec.tail import Tail
from trainwarden.record.sentinels import RestartNotice
from trainwarden.signals.diagnosis import diagnose

HEAD = 'Traceback (most recent call last):\n  File "/x/train.py", line 3, in main\n'
ERROR = "TypeError: 'str' object cannot be interpreted as an integer"
# Logs in which nothing but an exception of the program happened.
LOGS = {
    "a source line": f'{HEAD}    if "CUDA out of memory" not in str(err): time.sleep(err)\n{ERROR}',
    "a source line with a marker": (
        f'{HEAD}    if "CUDA out of memory" in str(err): time.sleep(err)\n'
        f"                                         ~~~~~~~~~~^^^^^\n{ERROR}"
    ),
    "an expression of several lines": (
        f'{HEAD}    handle(\n        "NCCL error: unhandled system error",\n        err,\n    )\n{ERROR}'
    ),
    "a call that logs": f'{HEAD}    log.error("No space left on device")\n{ERROR}',
    "colours of Python 3.13": (
        'Traceback (most recent call last):\n  File \x1b[35m"/x/train.py"\x1b[0m, line \x1b[35m3\x1b[0m, in '
        '\x1b[35mmain\x1b[0m\n    log.error(\x1b[1;31m"No space left on device"\x1b[0m)\n\x1b[1;35mTypeError\x1b[0m: '
        "\x1b[35m'str' object cannot be interpreted as an integer\x1b[0m"
    ),
    "a frame of rich": (
        "╭──────── Traceback (most recent call last) ────────╮\n"
        "│ /x/train.py:12 in main                            │\n│                                                  │\n"
        '│   11 │   if "CUDA out of memory" in str(err):     │\n❱ 12\n'
        '│ ❱ 12 │   │   raise Stop("CUDA out of memory")     │\n'
        "│ ╭──── locals ────╮                                │\n"
        "│ │ err = 'CUDA out of memory' │                    │\n"
        f"╰───────────────────────────────────────────────────╯\n{ERROR}"
    ),
    "a frame of a notebook": (
        "---------------------------------------------------------------------------\n"
        "TypeError                                 Traceback (most recent call last)\n"
        "Cell In[3], line 2\n      1 if True:\n----> 2     check('CUDA out of memory')\n"
        f"      3     print('Disk quota exceeded')\n\n{ERROR}"
    ),
    "a frame of pytest": f'>       check("CUDA out of memory")\n\nE       {ERROR}\n\ntest_x.py:3: TypeError',
    "a rank's frame among those of others": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/x/train.py", line 3, in main\n'
        '[rank1]:   File "/x/train.py", line 3, in main\n[rank0]:     log.error("No space left on device")\n'
        f"[rank0]: {ERROR}"
    ),
    "the notice of a restart": (
        f"{RestartNotice('local:1:0', 'after errors; away from n1 (TrainGpuXidFatal XID 79)', 'i-1')}\n"
        f"[rank0]: WARNING trainwarden: {RestartNotice('local:1:0', 'CUDA out of memory', 'i-1')}\n{ERROR}"
    ),
    "a command of set -x": f"+ python train.py --on-error 'CUDA out of memory'\n++ echo 'Disk quota exceeded'\n{ERROR}",
    "a command at a prompt": f"$ grep 'CUDA out of memory' log\n{ERROR}",
    "a command with the user": f"user@node1:~/x$ grep 'CUDA out of memory' log\n{ERROR}",
    "a command of srun": f"srun --ntasks 4 python train.py --retry-on 'CUDA out of memory'\n{ERROR}",
    "a command that a launcher logs": (
        "[2024-01-01 10:00:00,000] [INFO] [runner.py:555:main] cmd = /usr/bin/python -u train.py "
        f"--retry-on 'CUDA out of memory'\n{ERROR}"
    ),
    "a variable of the shell": f"export RETRY_ON='CUDA out of memory'\nRETRY_ON=CUDA out of memory\n{ERROR}",
    "a namespace": f"Namespace(lr=0.1, retry_on='CUDA out of memory', deadlock='Deadlock detected')\n{ERROR}",
    "a namespace that is logged": (
        f"2024-01-01 10:00:00 INFO train: args: Namespace(lr=0.1, retry_on='CUDA out of memory')\n{ERROR}"
    ),
    "arguments of Transformers": f"TrainingArguments(\n_n_gpu=1,\nretry_on=CUDA out of memory,\nseed=42,\n)\n{ERROR}",
    "arguments of Megatron-LM": f"  retry_on ........................... CUDA out of memory\n{ERROR}",
    "a table of flags": f"  --retry-on        CUDA out of memory\n  --lr              0.1\n{ERROR}",
    "settings in YAML": f"model:\n  layers: 12\n  dropout: 0.1\n  retry_on: CUDA out of memory\n  seed: 42\n{ERROR}",
    "settings in JSON": f'{{\n  "layers": 12,\n  "dropout": 0.1,\n  "retry_on": "CUDA out of memory"\n}}\n{ERROR}',
    "settings in a dict": f"{{'layers': 12, 'retry_on': 'CUDA out of memory', 'seed': 42}}\n{ERROR}",
}
# What resembles quoted text, and is evidence.
EVIDENCE = {
    "a message of several lines": (
        f"{HEAD}    main()\nRuntimeError: Error(s) in loading state_dict for GPT:\n\tsize mismatch for lm_head.weight",
        "ckpt_mismatch",
    ),
    "a line of C++": (
        "terminate called\n  what():  CUDA error: an illegal memory access was encountered",
        "cuda_illegal_access",
    ),
    "a record in JSON": ('{"level": "error", "msg": "CUDA out of memory. Tried to allocate"}', "cuda_oom"),
    "a loss in a dict": ("{'loss': nan, 'grad_norm': nan, 'learning_rate': 1e-4}", "numeric"),
    "the parser of arguments": (
        "usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --foo",
        "config_error",
    ),
    "a pod's state": ("    Last State:     Terminated\n      Reason:       OOMKilled", "host_oom"),
    "a kernel's record": ("kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has fallen off the bus.", "gpu_lost"),
    "a member of a group": (
        (
            '  + Exception Group Traceback (most recent call last):\n  |   File "/x/train.py", line 3, in main\n'
            "  |     run()\n  | RuntimeError: CUDA out of memory. Tried to allocate 2 GiB"
        ),
        "cuda_oom",
    ),
}


@cases("name", LOGS)
def test_quoted_text_accuses_nobody(name: str) -> None:
    log = f"{LOGS[name]}\n"
    assert (in_log(log), in_output(log)) == ("user_exception", "user_exception")


@cases("name", LOGS)
def test_the_reason_is_the_exception_and_not_its_code(name: str) -> None:
    tail = Tail()
    tail.add(LOGS[name].encode())
    reason = (command_outcome(1, tail).reason or "").replace("\x1b[0m", "").replace("\x1b[35m", "")
    assert reason.endswith(ERROR)
    assert "memory" not in reason


@cases(("log", "failure"), EVIDENCE.values(), ids=EVIDENCE)
def test_what_resembles_quoted_text_is_evidence(log: str, failure: str) -> None:
    assert (in_log(log), in_output(log)) == (failure, failure)


def test_a_frame_and_its_code_may_be_read_apart() -> None:
    reader = new_scanner()
    log = LOGS["an expression of several lines"].encode() + b"\n"
    matches = [match for byte in range(len(log)) for match in reader.feed(log[byte : byte + 1])]
    verdict = diagnose(matches)
    assert verdict is not None
    assert verdict.failure == "user_exception"


@pytest.mark.process
def test_a_real_traceback_names_the_exception(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("err = 'x'\nif 'CUDA out of memory' not in str(err): __import__('time').sleep(err)\n")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    tail = Tail()
    tail.add(run.stderr.encode())
    ending = command_outcome(run.returncode, tail)
    assert ending.failure is not None
    assert (ending.failure.slug, ending.exception_type) == ("user_exception", "TypeError")
    assert (ending.reason or "").startswith("TypeError: 'str' object")


def test_a_message_that_is_a_name_of_the_program_is_no_failure() -> None:
    assert classify_message("KeyError: 'CUDA out of memory'") is None
