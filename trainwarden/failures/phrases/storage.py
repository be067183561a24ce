"""What is printed by checkpoints, file systems and data sets."""

from trainwarden.failures.phrases.phrase import Phrases

STORAGE: Phrases = (
    ("storage_quota", (
        "no space left on device",
        "disk quota exceeded",
        "out of disk",
        "no space left for",
    )),
    ("ckpt_mismatch", (
        "size mismatch for",
        "size mismatch between saved",
        "global shape mismatch",
        "in loading state_dict for",
        ("key", r"\b(missing|unexpected) keys?(\(s\))?.{0,40}(state_dict|shard|checkpoint)"),
        ("loaded state dict", "loaded state dict (contains|has)"),
        "saved fp8 metadata does not match",
        "checkpoint being loaded used",
        "checkpointvalue",
    )),
    ("ckpt_save_failure", (
        "pytorchstreamwriter failed",
        ("inline_container.cc", r"inline_container\.cc.{0,40}unexpected pos"),
        "basic_ios::clear: iostream error",
        ("checkpoint", "(saving|writing|save|write) (of )?(the |a )?checkpoint.{0,40}fail"),
        ("checkpoint", "(failed|unable) to (save|write).{0,40}checkpoint"),
        ("checkpoint", "checkpoint (save|write|finalize|finalization).{0,20}fail"),
    )),
    ("ckpt_corrupt", (
        "pytorchstreamreader failed",
        "failed reading zip archive",
        "failed finding central directory",
        "not a zip file",
        "ran out of input",
        "pickle data was truncated",
        "invalid load key",
        # No operation of a pickle; but 149 is one, of a later format.
        ("weightsunpickler error", r"weightsunpickler error:\s{1,4}unsupported operand (?!149\b)"),
        "invalid magic number; corrupt file",
        "error while deserializing header",
        "metadataincompletebuffer",
        "the file might be corrupted",
        ("unable to load weights from", "unable to load weights from .{0,20}checkpoint file"),
        ("no such file or directory", r"no such file or directory.{0,300}(\.distcp|/\.metadata)\b"),
        ("checkpoint", r"checkpoint.{0,80}\b(corrupt(ed|ion)?|damaged|truncated|incomplete)\b"),
        ("checkpoint", r"\b(corrupt(ed)?|damaged|truncated|incomplete) checkpoint"),
    )),
    ("ckpt_missing", (
        ("valid checkpoint", "(can't find a|no) valid checkpoint"),
        "unable to find latest file at",
        ("checkpoint",
         (r"(?<!\w)(no checkpoints?( was| were)? found|checkpoint.{0,120}(not found|does not exist"
          "|doesn't exist))")),
        ("no file named", "error no file named .{1,120}found in directory"),
    )),
    ("config_error", (
        "weights only load failed",
    )),
    ("storage_io", (
        "stale file handle",
        "input/output error",
        "remote i/o error",
        "cannot send after transport endpoint shutdown",
        "transport endpoint is not connected",
        "no locks available",
    )),
    ("storage_permission", (
        "read-only file system",
    )),
    ("resource_limit", (
        "too many open files",
        "received 0 items of ancdata",
        "can't start new thread",
    )),
    ("data_worker_died", (
        ("dataloader worker", "dataloader worker.{0,80}(exited|killed|died)"),
        "dataloader timed out after",
        "subprocesses has abruptly died",
    )),
    ("data_missing", (
        ("the hub", "dataset '.{1,200}' (doesn't exist|is not accessible) on the hub"),
        ("dataset", "(couldn't|could not|cannot|can't) find (a |the |any )?(dataset|data file)"),
        "couldn't find any data file",
        "no files found with the given pattern",
        ("num_samples", "num_samples should be a positive integer value, but got num_samples=0"),
        ("unknown split", "unknown split .{1,80}should be one of"),
    )),
    ("data_corrupt", (
        "mmap length is greater than file size",
        "cannot reshape array of size",
        "cannot identify image file",
        "parquet magic bytes not found",
        ("truncated", r"image file is truncated|\btruncated file: eof"),
        "compressed file ended before the end-of-stream marker",
        "not a gzipped file",
        ("generating the dataset", "an error occurred while generating the dataset"),
        ("unable to create tensor", "unable to create tensor, you should probably activate truncation and/or padding"),
    )),
)  # fmt: skip
