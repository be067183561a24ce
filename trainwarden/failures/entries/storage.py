"""What fails in file systems, checkpoints and data sets."""

from trainwarden.failures.failure import Failure

_STOP, _AGAIN = False, True

STORAGE: tuple[Failure, ...] = (
    Failure(
        "storage_quota", "storage", "checkpoint", "storage", "configuration",
        "critical", "stop", _STOP,
        "The disk or the quota is full. Free space, remove old checkpoints, keep fewer (`save_total_limit`), or write "
        "them elsewhere.",
    ),
    Failure(
        "storage_io", "storage", "checkpoint", "storage", "hardware",
        "error", "restart", _AGAIN,
        "The file system failed to read or write. Look at the mount and at the storage system before many jobs retry.",
        retryable_in_process=True,
    ),
    Failure(
        "storage_permission", "storage", "configuration", "storage", "configuration",
        "error", "stop", _STOP,
        "A file may not be read or written. Check its owner, its mode and whether the mount is read-only.",
    ),
    Failure(
        "storage_missing", "storage", "configuration", "storage", "configuration",
        "error", "stop", _STOP,
        "A file or folder is not there. Check the path, and that the node has the file system mounted.",
    ),
)  # fmt: skip

CHECKPOINT: tuple[Failure, ...] = (
    Failure(
        "ckpt_corrupt", "checkpoint", "checkpoint", "checkpoint", "unknown",
        "critical", "roll_back", _AGAIN,
        "The checkpoint is damaged or was not written to its end. Resume from the one before.",
    ),
    Failure(
        "ckpt_missing", "checkpoint", "checkpoint", "checkpoint", "configuration",
        "error", "roll_back", _STOP,
        "The checkpoint to resume from is not there. Check the path, or resume from the one before.",
    ),
    Failure(
        "ckpt_mismatch", "checkpoint", "checkpoint", "checkpoint", "configuration",
        "error", "stop", _STOP,
        "The checkpoint does not fit this model. Compare model size, vocabulary, precision and parallel layout with "
        "the run that saved it.",
    ),
    Failure(
        "ckpt_save_failure", "checkpoint", "checkpoint", "checkpoint", "unknown",
        "error", "restart", _AGAIN,
        "A checkpoint could not be written. Check space and quota where it is saved, then start again.",
        retryable_in_process=True,
    ),
)  # fmt: skip

DATA: tuple[Failure, ...] = (
    Failure(
        "data_corrupt", "data_loading", "data_loading", "data", "user",
        "error", "stop", _STOP,
        "The data set cannot be read as what it should be. Verify its files and columns, or build them again.",
    ),
    Failure(
        "data_missing", "data_loading", "data_loading", "data", "configuration",
        "error", "stop", _STOP,
        "The data set, one of its splits or its files cannot be found, or hold no samples. Check its name and path, "
        "and that every node has the file system mounted.",
    ),
    Failure(
        "data_exception", "data_loading", "data_loading", "data", "user",
        "error", "stop", _STOP,
        "The code that loads the data raised an exception. The traceback of the worker shows the line; num_workers=0 "
        "runs it in the training process, where it can be debugged.",
    ),
    Failure(
        "data_worker_died", "data_loading", "data_loading", "data", "unknown",
        "error", "restart", _AGAIN,
        "A data-loading worker died or did not answer. Look for an out-of-memory kill on that host; try fewer workers, "
        "and num_workers=0 to see an error of its own.",
    ),
)  # fmt: skip
