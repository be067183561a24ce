"""docs/failures.md, made from the taxonomy."""

from trainwarden.failures.entries.distributed import COLLECTIVES, NETWORK
from trainwarden.failures.entries.gpu import GPU, MEMORY
from trainwarden.failures.entries.process import BEHAVIOUR, PROCESS, SCHEDULER
from trainwarden.failures.entries.program import MODEL, SETTINGS
from trainwarden.failures.entries.storage import CHECKPOINT, DATA, STORAGE
from trainwarden.failures.failure import Failure

SECTIONS: tuple[tuple[str, tuple[Failure, ...]], ...] = (
    ("Memory", MEMORY),
    ("GPU and driver", GPU),
    ("Between ranks", COLLECTIVES),
    ("Network", NETWORK),
    ("Storage", STORAGE),
    ("Checkpoints", CHECKPOINT),
    ("Data", DATA),
    ("Settings and software", SETTINGS),
    ("Model and numbers", MODEL),
    ("Processes and launchers", PROCESS),
    ("Schedulers and nodes", SCHEDULER),
    ("Behaviour", BEHAVIOUR),
)

_COLUMNS = (
    "slug", "error type", "category", "subsystem", "fault", "severity", "action",
    "restart", "repeat", "cascade", "hint",
)  # fmt: skip

_HEAD = """\
# Failures

Made from the taxonomy by `python -m trainwarden.failures.document > docs/failures.md`; change it there.

Which failure is this, may the run be restarted, and what has to change? The tables list every failure by its slug.
`trainwarden scan LOG` and `trainwarden.classify_exception(error)` find the slug.

| column | meaning |
|---|---|
| slug | names one way to fail |
| error type | the label that alerts carry and policies use; several slugs share one |
| category | what the training was doing |
| fault | the part that most likely has to change |
| action | what to do next, see below |
| restart | the same job, started again, may well succeed |
| repeat | the same call, in the same process, may well succeed |
| cascade | mostly the consequence of another failure: look for that one first |

The actions are `stop` (a person changes something first), `restart`, `check_node` (test the nodes, then restart),
`exclude_node`, `roll_back` (to an earlier checkpoint) and `wait`. *Repeat* is narrower than *restart*: after an illegal
memory access a restart helps, but the process has lost its GPU for good.

## How an exception is classified

    import trainwarden

    try:
        train()
    except Exception as error:
        failure = trainwarden.classify_exception(error)  # failure.slug, .error_type, .category, .action, .hint, …
        print(trainwarden.recovery_suggestion(error))    # what to change, in a sentence or two
        raise

A run in progress does this by itself and writes the result to its record. It imports no other library, and it never
raises.

- One exception is classified by the number of an operating system's error and its path, then by its message, then by
  its type. The message decides in most cases: NCCL, CUDA, cuDNN, a damaged checkpoint and a wrong shape all raise a
  `RuntimeError`. Types of other libraries (PyTorch, Ray, Hugging Face, DeepSpeed, Lightning, requests, botocore, …) are
  recognised by name and module. The message of a `KeyError`, `AttributeError`, `NameError`, `IndexError` or
  `ImportError` is a name out of the program and decides nothing. Of a long message the first and the last 6000
  characters are read.
- Of a chain (`raise … from`, members of a group, a task of Ray) the deepest certain failure counts: a full disk is the
  cause of a checkpoint that could not be saved. A vague one, such as a broken connection or a missing file, yields to
  an outer exception that is more specific.
- An exception that was only being handled when this one was raised counts if no other is classified, or if it is grave
  and the outer one is vague: a broken pipe while a process cleans up after running out of GPU memory.
  `raise … from None` is respected.
- An exception without any match is `user_exception`.

## Retry in the process

    from trainwarden import retry

    @retry                                          # 5 calls in all
    def fetch(name): ...

    @retry(attempts=8, base_seconds=2, max_seconds=60, max_elapsed_seconds=600, on=MyFlakyError)
    async def upload(path): ...

    tokenizer = retry(attempts=3)(AutoTokenizer.from_pretrained)("gpt2")

`retry` calls again only after a failure marked *repeat* below, or one that `on` names: exception types, or a function
that decides. The wait is drawn evenly between nothing and `base_seconds`, which grows by `factor` (2) with each call up
to `max_seconds`. The last exception is raised as it is. An interrupt, an exit or a cancellation ends it at once.
Failures of the types `cuda_error`, `gpu_hardware`, `nccl` and `nccl_timeout` are never retried, whatever `on` is: the
process cannot go on after them; restart the job instead. Each retry is logged, and noted as `retry` in the events of
the run in progress. Generator functions are refused: they fail while they are read.
"""


def document() -> str:
    """Return docs/failures.md."""
    parts = [_HEAD]
    for title, failures in SECTIONS:
        parts.append(f"\n## {title}\n\n| {' | '.join(_COLUMNS)} |\n{'|---' * len(_COLUMNS)}|\n")
        parts += [_row(failure) for failure in failures]
    return "".join(parts)


def _row(failure: Failure) -> str:
    named = (failure.slug, failure.error_type)
    plain = (failure.category, failure.subsystem, failure.fault, failure.severity, failure.action)
    flags = (failure.retryable, failure.retryable_in_process, failure.cascade)
    cells = [*(f"`{each}`" for each in named), *plain, *("yes" if flag else "" for flag in flags), failure.hint]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


if __name__ == "__main__":
    print(document(), end="")
