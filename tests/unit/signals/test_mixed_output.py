"""What a log quotes, interleaves, chains and gets over: every judge names the same cause."""

from __future__ import annotations

from tests.cases import cases
from tests.unit.signals.verdicts import in_log, in_output
from trainwarden.classify import classify_message
from trainwarden.exec.outcome import command_outcome
from trainwarden.exec.tail import Tail

HEAD = 'Traceback (most recent call last):\n  File "/x/train.py", line 3, in main\n'
LOGS = {
    "a condition with an assignment": (
        (
            f"{HEAD}"
            '    match = "NCCL timeout" in (text := err.args[0])\n'
            "            ^^^^^^^^^^^^^\n"
            "AttributeError: 'NoneType' object has no attribute 'args'"
        ),
        "user_exception",
    ),
    "a table in the code": (
        (
            f"{HEAD}"
            '    RETRY = {"CUDA out of memory": 1, "No space left on device": 2}[name]\n'
            "            ~~~~~~~~~~~~~~~~^^^^^^\n"
            "KeyError: 'x'"
        ),
        "user_exception",
    ),
    "a message that the code would log": (
        (
            f"{HEAD}"
            '    logger.error(f"node {host} is unreachable after {n} tries")\n'
            "NameError: name 'host' is not defined"
        ),
        "user_exception",
    ),
    "a comment behind the code": (
        (f"{HEAD}    x = y / z  # raises if the loss is nan\nZeroDivisionError: division by zero"),
        "user_exception",
    ),
    "a line that a debugger shows": (
        (
            "> /x/train.py(12)main()\n"
            "-> raise RuntimeError('CUDA out of memory')\n"
            "(Pdb) c\n"
            "TypeError: bad operand type for unary -: 'str'"
        ),
        "user_exception",
    ),
    "a difference of two files": (
        (
            "diff --git a/x.py b/x.py\n"
            "-    if 'Killed' in line:\n"
            "+    if 'CUDA out of memory' in line:\n"
            "TypeError: bad operand type"
        ),
        "user_exception",
    ),
    "lines that a search found": (
        (
            "train.py:12:    except torch.cuda.OutOfMemoryError:\n"
            "train.py:13:        raise SystemExit('out of memory')\n"
            "TypeError: bad operand type"
        ),
        "user_exception",
    ),
    "numbered source": (
        (
            "11  try:\n"
            "12      step()\n"
            "13  except RuntimeError as e:\n"
            "14      if 'NCCL error' in str(e): raise\n"
            "TypeError: bad operand type"
        ),
        "user_exception",
    ),
    "a container's command": (
        (
            "docker run --rm --oom-kill-disable=false -e MSG='disk quota exceeded' img python train.py\n"
            "TypeError: bad operand type"
        ),
        "user_exception",
    ),
    "a variable that set -x echoes": (
        ("+ export 'HINT=node is unreachable'\n+ HINT='node is unreachable'\nTypeError: bad operand type"),
        "user_exception",
    ),
    "a wrapped command": (
        ("sbatch --wrap \"grep 'DUE TO TIME LIMIT' log\"\nTypeError: bad operand type"),
        "user_exception",
    ),
    "a submitted command": (
        ("ray job submit -- python train.py --abort-on 'NCCL timeout'\nTypeError: bad operand type"),
        "user_exception",
    ),
    "a command with a time": (
        ("2026-01-01 10:00:00 + python train.py --retry-on 'CUDA out of memory'\nTypeError: bad operand type"),
        "user_exception",
    ),
    "the command of a failed process": (
        ("subprocess.CalledProcessError: Command '['x.py', 'CUDA out of memory']' returned non-zero exit status 1."),
        "launcher_child",
    ),
    "a dataclass": (
        ("TrainConfig(lr=0.1, on_error='CUDA out of memory', seed=1)\nTypeError: bad operand type"),
        "user_exception",
    ),
    "a list of a logged configuration": (
        (
            "[2026-01-01 10:00:00,000][__main__][INFO] - trainer:\n"
            "  retry:\n"
            "  - CUDA out of memory\n"
            "  - NCCL timeout\n"
            "  max: 3\n"
            "TypeError: bad operand type"
        ),
        "user_exception",
    ),
    "a table of variables": (
        ("NCCL_DEBUG=INFO\nERROR_WORDS=No space left on device\nHOME=/x\nTypeError: bad operand type"),
        "user_exception",
    ),
    "a table of settings": (
        ("│ retry_on    │ CUDA out of memory │\n│ seed        │ 1 │\nTypeError: bad operand type"),
        "user_exception",
    ),
    "settings in TOML": (
        ('[retry]\nmatch = "CUDA out of memory"\nmax = 3\nTypeError: bad operand type'),
        "user_exception",
    ),
    "a list in JSON": (
        (
            "{\n"
            '  "retry": {\n'
            '    "match": [\n'
            '      "CUDA out of memory",\n'
            '      "NCCL timeout"\n'
            "    ],\n"
            '    "max": 3\n'
            "  }\n"
            "}\n"
            "TypeError: bad operand type"
        ),
        "user_exception",
    ),
    "a list in YAML": (
        ("retry_on:\n  - CUDA out of memory\n  - No space left on device\nseed: 1\nTypeError: bad operand type"),
        "user_exception",
    ),
    "the help of a program": (
        (
            "usage: train.py [-h] [--retry-on TEXT]\n"
            "\n"
            "options:\n"
            "  -h, --help       show this help message and exit\n"
            "  --retry-on TEXT  what to retry on, such as CUDA out of memory or NCCL timeout\n"
            "train.py: error: unrecognized arguments: --foo"
        ),
        "config_error",
    ),
    "the description of a progress bar": (
        (
            "Checking node is unreachable handler:  10%|#  | 1/10 [00:01<00:09]\r 20%|##  | 2/10 [00:01<00:09]\n"
            "TypeError: bad operand type"
        ),
        "user_exception",
    ),
    "an error behind a progress bar": (
        (" 41%|## | 366/903 [5:15<6:53]torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
        "cuda_oom",
    ),
    "a lost peer before the rank that broke it": (
        (
            "[rank1]: Traceback (most recent call last):\n"
            "[rank0]: Traceback (most recent call last):\n"
            '[rank1]:   File "t.py", line 1, in f\n'
            '[rank0]:   File "t.py", line 9, in g\n'
            "[rank0]:     dist.all_reduce(x)\n"
            "[rank1]:     y = z[5]\n"
            "[rank0]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited\n"
            "[rank1]: IndexError: index 5 is out of bounds for dimension 0 with size 3"
        ),
        "shape_mismatch",
    ),
    "a handled exception of another rank": (
        (
            "[rank0]: RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n"
            "[rank1]: During handling of the above exception, another exception occurred:\n"
            "[rank1]: ValueError: x"
        ),
        "cuda_oom",
    ),
    "the code of another rank": (
        (
            '[rank3]:   File "/x/t.py", line 3, in main\n'
            "[rank2]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
            "[rank3]:     if 'NCCL error' in s: pass\n"
            "[rank3]: TypeError: x"
        ),
        "cuda_illegal_access",
    ),
    "a missing file, then an exception that says nothing": (
        (
            f"{HEAD}"
            "    open(p)\n"
            "FileNotFoundError: [Errno 2] No such file or directory: '/cache/x.json'\n"
            "\n"
            "During handling of the above exception, another exception occurred:\n"
            "\n"
            f"{HEAD}"
            "    main()\n"
            "KeyError: 'input_ids'"
        ),
        "storage_missing",
    ),
    "a direct cause": (
        (
            f"{HEAD}"
            "    f()\n"
            "OSError: [Errno 28] No space left on device\n"
            "\n"
            "The above exception was the direct cause of the following exception:\n"
            "\n"
            f"{HEAD}"
            "    g()\n"
            "RuntimeError: saving failed"
        ),
        "storage_quota",
    ),
    "no memory, then a vague exception": (
        (
            f"{HEAD}"
            "    f()\n"
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
            "\n"
            "During handling of the above exception, another exception occurred:\n"
            "\n"
            f"{HEAD}"
            "    g()\n"
            "RuntimeError: step failed"
        ),
        "cuda_oom",
    ),
    "a group of two exceptions": (
        (
            "  + Exception Group Traceback (most recent call last):\n"
            '  |   File "/x/t.py", line 3, in main\n'
            "  | ExceptionGroup: 2 tasks failed (2 sub-exceptions)\n"
            "  +-+---------------- 1 ----------------\n"
            "    | Traceback (most recent call last):\n"
            '    |   File "/x/t.py", line 9, in f\n'
            "    |     x()\n"
            "    | KeyError: 'a'\n"
            "    +---------------- 2 ----------------\n"
            "    | Traceback (most recent call last):\n"
            '    |   File "/x/t.py", line 9, in g\n'
            "    | torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
            "    +------------------------------------"
        ),
        "cuda_oom",
    ),
    "the code within a group": (
        (
            "  + Exception Group Traceback (most recent call last):\n"
            '  |   File "/x/t.py", line 3, in main\n'
            "  |     check('CUDA out of memory')\n"
            "  | ExceptionGroup: tasks (1 sub-exception)\n"
            "  +-+---------------- 1 ----------------\n"
            "    | Traceback (most recent call last):\n"
            '    |   File "/x/t.py", line 9, in f\n'
            "    |     raise_if('No space left on device')\n"
            "    | ValueError: x\n"
            "    +------------------------------------"
        ),
        "user_exception",
    ),
    "a file server that came back": (
        (f"kernel: nfs: server a not responding, timed out\nkernel: nfs: server a OK\n{HEAD}    f()\nValueError: x"),
        "user_exception",
    ),
    "noise after the failure": (
        (
            f"{HEAD}"
            "    f()\n"
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
            "wandb: ERROR Error while calling W&B API: user is not logged in\n"
            "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***"
        ),
        "cuda_oom",
    ),
    "a lost node, then a bug": (
        (
            "ERROR: node gpu-7 is unreachable\n"
            "step 1/9 loss 2\n"
            "step 2/9 loss 2\n"
            "step 3/9 loss 2\n"
            "step 4/9 loss 2\n"
            f"{HEAD}"
            "    f()\n"
            "KeyError: 'a'"
        ),
        "user_exception",
    ),
    "a bug, then words about a worker": (
        (f"{HEAD}    f()\nKeyError: 'a'\nERROR: worker 3 was lost\n"),
        "user_exception",
    ),
    "what is printed before a crash": (
        ("ERROR: device memory pool is exhausted\nSegmentation fault (core dumped)"),
        "cuda_oom",
    ),
    "a warning before a crash": (
        ("WARNING: node gpu-9 is unreachable, using the others\nSegmentation fault (core dumped)"),
        "crash_signal",
    ),
    "a connection that was tried again": (
        ("ERROR: failed to connect to rank 0 (attempt 1 of 5), retrying\nconnected\nstep 1/9 loss 2\nValueError: x"),
        "user_exception",
    ),
    "names of tests": (
        (
            "tests/test_x.py::test_cuda_out_of_memory PASSED\n"
            "tests/test_x.py::test_node_lost PASSED\n"
            "TypeError: bad operand type"
        ),
        "user_exception",
    ),
    "a logged configuration in JSON": (
        ('INFO config {"retry_on": "CUDA out of memory", "lr": 0.1}\nTypeError: bad operand type'),
        "user_exception",
    ),
    "text of a model": (
        (
            'Generated: "CUDA out of memory is an error"\n'
            "prompt: what is a Segmentation fault?\n"
            "TypeError: bad operand type"
        ),
        "user_exception",
    ),
}


@cases(("log", "failure"), LOGS.values(), ids=LOGS)
def test_every_judge_names_the_cause(log: str, failure: str) -> None:
    tail = Tail()
    tail.add(log.encode())
    ended = command_outcome(1, tail).failure
    known = classify_message(log)
    expected = None if failure == "user_exception" else failure
    assert (in_log(f"{log}\n"), in_output(f"{log}\n")) == (failure, failure)
    assert (ended and ended.slug, known and known.slug) == (failure, expected)
