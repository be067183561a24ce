"""Which failure an exception or an exit status is.

Exceptions are told apart by type and by message, because one type says many things: what NCCL, CUDA and a wrong shape
raise is a RuntimeError each time. Types of other libraries are known by name, so that none is imported.
"""

import errno
import re
import signal
from collections.abc import Iterator

from trainwarden.phrases import PHRASES
from trainwarden.taxonomy import FAILURES, Failure

_MESSAGES = tuple((slug, re.compile("|".join(phrases), re.IGNORECASE)) for slug, phrases in PHRASES)

_TYPE_NAMES = {
    "OutOfMemoryError": "cuda_oom",
    "DistBackendError": "nccl_system",
    "DistNetworkError": "rendezvous",
    "DistStoreError": "store_timeout",
    "RendezvousConnectionError": "rendezvous",
    "RendezvousTimeoutError": "rendezvous",
    "CheckpointingException": "ckpt_corrupt",
    "SafetensorError": "ckpt_corrupt",
    "BadZipFile": "ckpt_corrupt",
    "UnpicklingError": "ckpt_corrupt",
    "GatedRepoError": "hub_auth",
}

# The order matters: a subclass stands before its base.
_TYPES: tuple[tuple[type[BaseException], str], ...] = (
    (MemoryError, "host_oom"),
    (FloatingPointError, "numeric"),
    (TimeoutError, "peer_timeout"),
    (ConnectionError, "peer_reset"),
    (EOFError, "peer_reset"),
    (ImportError, "config_error"),
    (UnicodeDecodeError, "data_corrupt"),
)

_ERRNOS = {
    errno.ENOMEM: "host_oom",
    errno.ENOSPC: "storage_quota",
    errno.EDQUOT: "storage_quota",
    errno.EIO: "storage_io",
    errno.ESTALE: "storage_io",
    errno.ESHUTDOWN: "storage_io",
    errno.EROFS: "storage_permission",
    errno.EACCES: "storage_permission",
    errno.EPERM: "storage_permission",
    errno.ENOENT: "storage_missing",
    errno.ENOTDIR: "storage_missing",
    errno.EADDRINUSE: "rendezvous",
    errno.EHOSTUNREACH: "peer_timeout",
    errno.ENETUNREACH: "peer_timeout",
}

_CHECKPOINT_PATH = re.compile(r"checkpoint|ckpt|global_step|\biter_\d|\.(pt|pth|distcp|safetensors)\b", re.IGNORECASE)

_EXITS = {
    2: "config_error",
    16: "rerun_to_disambiguate",
    17: "sdc_suspect",
    93: "launcher_stop",
    126: "config_error",
    127: "config_error",
}
_CRASHES = frozenset(
    (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGSYS, signal.SIGTRAP)
)


def classify_exception(exc: BaseException) -> Failure:
    """The failure that an exception is; `user_exception` where neither it nor what led to it is known.

    Of explicit causes (`raise … from`) the deepest known one counts. What merely was being handled at the time counts
    only if nothing else is known: a training may run inside the `except` that found no checkpoint.
    """
    slugs = [slug for link in _causes(exc) if (slug := _slug_of(link))]
    if slugs:
        return FAILURES[slugs[-1]]
    slugs = [slug for link in _contexts(exc) if (slug := _slug_of(link))]
    return FAILURES[slugs[0] if slugs else "user_exception"]


def classify_message(text: str) -> Failure | None:
    """The failure that one line or message tells of; None if it is not known."""
    slug = _slug_of_message(text)
    return FAILURES[slug] if slug else None


def classify_exit(status: int) -> Failure | None:
    """The failure that an exit status alone tells of; None for 0.

    Args:
        status: as `subprocess` gives it, minus the signal, or as a shell does, 128 plus the signal.
    """
    if status == 0:
        return None
    number = -status if status < 0 else status - 128 if status > 128 else 0
    if number == signal.SIGKILL:
        return FAILURES["killed"]
    if number in {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}:
        return FAILURES["cancelled"]
    if number in _CRASHES:
        return FAILURES["crash_signal"]
    return FAILURES[_EXITS.get(status, "nonzero_exit" if status > 0 else "killed")]


def _slug_of(exc: BaseException) -> str | None:
    if isinstance(exc, SystemExit):
        found = classify_exit(exc.code) if isinstance(exc.code, int) else None
        return found.slug if found else None
    text = _message(exc)
    if isinstance(exc, (EOFError, TimeoutError)) and (slug := _slug_of_message(text)):
        return slug
    for known, slug in _TYPES:
        if isinstance(exc, known):
            return slug
    if isinstance(exc, OSError) and exc.errno in _ERRNOS:
        slug = _ERRNOS[exc.errno]
        is_checkpoint = slug == "storage_missing" and _CHECKPOINT_PATH.search(str(exc.filename or ""))
        return "ckpt_missing" if is_checkpoint else slug
    if slug := _slug_of_message(text):
        return slug
    names = {base.__name__ for base in type(exc).__mro__}
    return next((slug for name, slug in _TYPE_NAMES.items() if name in names), None)


def _slug_of_message(text: str) -> str | None:
    # Messages can be of any size; what they are about stands at the beginning.
    text = text[:4000]
    return next((slug for slug, pattern in _MESSAGES if pattern.search(text)), None)


def _message(exc: BaseException) -> str:
    try:
        return str(exc)
    except Exception:  # noqa: BLE001  # the __str__ of a stranger
        return ""


def _causes(exc: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = exc
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__


def _contexts(exc: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = exc
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
