"""The metrics of the file systems that runs write to."""

from trainwarden_exporter.core.metric import gauge

_FILESYSTEM = "statvfs of the mount, each 30 s; use is record, logs or checkpoints. Links in a path are not followed"
TRAINING_FILESYSTEM_AVAIL_BYTES = gauge(
    "training_filesystem_avail_bytes",
    "run_id use",
    "bytes",
    "Room for users on the file system to which a running run writes its record, logs or checkpoints.",
    _FILESYSTEM,
    "training_filesystem_avail_bytes < on (instance, run_id, use) 0.05 * training_filesystem_size_bytes",
)
TRAINING_FILESYSTEM_SIZE_BYTES = gauge(
    "training_filesystem_size_bytes",
    "run_id use",
    "bytes",
    "Size of this file system.",
    _FILESYSTEM,
    "training_filesystem_avail_bytes / on (instance, run_id, use) training_filesystem_size_bytes",
)
TRAINING_FILESYSTEM_FILES_AVAIL = gauge(
    "training_filesystem_files_avail",
    "run_id use",
    "files",
    "Files that users can still create on this file system; absent where it has no such limit.",
    _FILESYSTEM,
    "training_filesystem_files_avail < 10000",
)
TRAINING_FILESYSTEM_ANSWER_SECONDS = gauge(
    "training_filesystem_answer_seconds",
    "run_id use",
    "seconds",
    "How long this file system took to answer; of one that does not answer: so far.",
    _FILESYSTEM,
    "training_filesystem_answer_seconds > 1",
)
TRAINING_FILESYSTEM_ANSWERING = gauge(
    "training_filesystem_answering",
    "run_id use",
    "0/1",
    "0 if this file system has not answered for 5 s.",
    _FILESYSTEM,
    "training_filesystem_answering == 0",
)
