"""Classifies exceptions by type and errno."""

import builtins
import errno
import re
from collections import namedtuple

from trainwarden.failures.chain import attribute

# By name, so that no library is imported; a common name is qualified by its library.
# Certain, whatever the message.
_SURE = {
    "builtins.MemoryError": "host_oom",
    "builtins.FloatingPointError": "numeric",
    "torch.OutOfMemoryError": "cuda_oom",
    "cupy.OutOfMemoryError": "cuda_oom",
    "ray.OutOfMemoryError": "ray_host_oom",
    "ray.ObjectStoreFullError": "ray_host_oom",
    "ray.OutOfDiskError": "storage_quota",
    "ray.NodeDiedError": "ray_node_died",
    "ray.RuntimeEnvSetupError": "ray_setup",
    "ray.ActorUnschedulableError": "ray_setup",
    "ray.TaskUnschedulableError": "ray_setup",
    "RendezvousConnectionError": "rendezvous",
    "RendezvousTimeoutError": "rendezvous",
    "DeadlockDetectedException": "deadlock",
    "SafetensorError": "ckpt_corrupt",
    "BackendCompilerFailed": "compile_toolchain",
    "InductorError": "compile_toolchain",
    "LoweringException": "compile_toolchain",
    "CppCompileError": "compile_toolchain",
    "triton.CompilationError": "compile_toolchain",
    "triton.OutOfResources": "compile_toolchain",
    "DeepSpeedConfigError": "config_error",
    "MisconfigurationException": "config_error",
    "argparse.ArgumentError": "config_error",
    "click.UsageError": "config_error",
    "omegaconf.OmegaConfBaseException": "config_error",
    "hydra.HydraException": "config_error",
    "yaml.YAMLError": "config_error",
    "pydantic.ValidationError": "config_error",
    "pydantic_core.ValidationError": "config_error",
    "huggingface_hub.HFValidationError": "config_error",
    "huggingface_hub.GatedRepoError": "hub_auth",
    "huggingface_hub.RepositoryNotFoundError": "hub_auth",
    "huggingface_hub.RevisionNotFoundError": "hub_auth",
    "huggingface_hub.LocalTokenNotFoundError": "hub_auth",
    "huggingface_hub.LocalEntryNotFoundError": "hub_network",
    "huggingface_hub.OfflineModeIsEnabled": "hub_network",
    "botocore.NoCredentialsError": "hub_auth",
    "botocore.PartialCredentialsError": "hub_auth",
    "botocore.ProfileNotFound": "hub_auth",
    "botocore.TokenRetrievalError": "hub_auth",
    "botocore.SSOTokenLoadError": "hub_auth",
    "botocore.HTTPClientError": "hub_network",
    "botocore.ConnectionError": "hub_network",
    "requests.ConnectionError": "hub_network",
    "requests.Timeout": "hub_network",
    "requests.ChunkedEncodingError": "hub_network",
    "urllib3.HTTPError": "hub_network",
    "httpx.TransportError": "hub_network",
    "httpcore.NetworkError": "hub_network",
    "httpcore.TimeoutException": "hub_network",
    "aiohttp.ClientConnectionError": "hub_network",
    "aiohttp.ClientPayloadError": "hub_network",
    "http.HTTPException": "hub_network",
    "http.RemoteDisconnected": "hub_network",
    "urllib.URLError": "hub_network",
    "socket.gaierror": "hub_network",
    "ssl.SSLError": "hub_network",
    "datasets.DatasetNotFoundError": "data_missing",
    "datasets.DataFilesNotFoundError": "data_missing",
    "datasets.EmptyDatasetError": "data_missing",
    "datasets.DatasetGenerationError": "data_corrupt",
    "datasets.DatasetsError": "data_corrupt",
    "datasets.ChecksumVerificationError": "data_corrupt",
    "datasets.SplitsVerificationError": "data_corrupt",
    "PIL.UnidentifiedImageError": "data_corrupt",
    "gzip.BadGzipFile": "data_corrupt",
    "pyarrow.ArrowInvalid": "data_corrupt",
}
# Vague: the failure of the message or of the cause takes precedence.
_VAGUE = {
    "OutOfMemoryError": "cuda_oom",
    "DistBackendError": "nccl_system",
    "DistNetworkError": "rendezvous",
    "DistStoreError": "store_timeout",
    "RendezvousClosedError": "rendezvous",
    "RendezvousStateError": "rendezvous",
    "AcceleratorError": "cuda_error",
    "XlaRuntimeError": "cuda_error",
    "ChildFailedError": "launcher_child",
    "ProcessRaisedException": "launcher_child",
    "ProcessExitedException": "launcher_child",
    "SignalException": "cancelled",
    "lightning.SIGTERMException": "cancelled",
    "pytorch_lightning.SIGTERMException": "cancelled",
    "BrokenProcessPool": "killed",
    "TerminatedWorkerError": "killed",
    "CheckpointingException": "ckpt_corrupt",
    "CheckpointException": "ckpt_corrupt",
    "BadZipFile": "ckpt_corrupt",
    "UnpicklingError": "ckpt_corrupt",
    "ray.RayActorError": "ray_worker_died",
    "ray.WorkerCrashedError": "ray_worker_died",
    "ray.ObjectLostError": "ray_worker_died",
    "ray.GetTimeoutError": "peer_timeout",
    "ray.TaskCancelledError": "cancelled",
    "wandb.CommError": "hub_network",
    "TorchDynamoException": "compile_toolchain",
    "builtins.ImportError": "missing_module",
    "builtins.ConnectionError": "peer_reset",
    "builtins.UnicodeDecodeError": "data_corrupt",
}
# Modules whose name differs from their library's.
_LIBRARIES = {"_socket": "socket", "_ssl": "ssl", "_pickle": "pickle", "jaxlib": "jax"}

_ERRNOS = {
    errno.ENOMEM: "host_oom",
    errno.ENOSPC: "storage_quota",
    errno.EDQUOT: "storage_quota",
    errno.EIO: "storage_io",
    errno.ESTALE: "storage_io",
    errno.ESHUTDOWN: "storage_io",
    errno.EREMOTEIO: "storage_io",
    errno.ENOLCK: "storage_io",
    errno.EBADMSG: "storage_io",
    errno.EUCLEAN: "storage_io",
    errno.EROFS: "storage_io",
    errno.EACCES: "storage_permission",
    errno.EPERM: "storage_permission",
    errno.ENOENT: "storage_missing",
    errno.ENOTDIR: "storage_missing",
    errno.EMFILE: "resource_limit",
    errno.ENFILE: "resource_limit",
    errno.EADDRINUSE: "rendezvous",
    errno.ETIMEDOUT: "peer_timeout",
    errno.EHOSTUNREACH: "peer_timeout",
    errno.ENETUNREACH: "peer_timeout",
    errno.ENETDOWN: "peer_timeout",
}
_PATHS = (
    # A shard that the checkpoint itself promises: its saving was interrupted.
    ("ckpt_corrupt", r"\.distcp$|(^|/)\.metadata$"),
    ("ckpt_missing", r"checkpoint|ckpt|global_step|\biter_\d|\.(pt|pth|safetensors)$"),
    ("data_missing", r"dataset|\.(jsonl|parquet|arrow|tfrecord|mds|idx)(\.(gz|zst))?$"),
)
_MOST_FRAMES = 200
# `[Errno 2] No such file or directory: '/data/x'`, and what it was moved to behind an arrow.
_ERRNO_MESSAGE = r"\[Errno (\d{1,5})\] ([^\n]*?)(?:: b?(['\"])([^\n]*?)\3(?: -> [^\n]*)?)?\s*"
# The wrapper's message about these is more specific than a missing file.
_UNSURE = frozenset(("storage_missing", "storage_permission"))


# As cheap to load as `trainwarden.failures.failure`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class _Fields(NamedTuple):
        slug: str
        sure: bool
else:
    _Fields = namedtuple("_Fields", ("slug", "sure"))  # typed above


class Classification(_Fields):
    """A slug, and whether it is certain: then nothing vaguer, or further out in the chain, takes precedence."""

    __slots__ = ()


def of_type(exc: BaseException) -> Classification | None:
    """Return the failure of the exception's type; None if unknown."""
    bases = type(exc).__mro__
    for table, sure in ((_SURE, True), (_VAGUE, False)):
        for base in bases:
            if slug := table.get(f"{_library(base)}.{base.__name__}") or table.get(base.__name__):
                return Classification(slug, sure)
    return _of_reader(exc) or _of_silence(exc)


def of_errno(exc: BaseException) -> Classification | None:
    """Return the failure of an OSError's number and path; None of any other exception."""
    of_a_library = of_type(exc)
    # Errors of a server or a certificate are OSErrors too, with other meanings of their numbers.
    if OSError not in type(exc).__mro__ or (of_a_library and of_a_library.sure):
        return None
    number = attribute(exc, "errno")
    slug = _ERRNOS.get(number) if type(number) is int else None
    if slug == "storage_missing":
        path = _path(exc)
        slug = next((named for named, pattern in _PATHS if re.search(pattern, path, re.IGNORECASE)), slug)
    elif slug == "storage_quota" and _path(exc).startswith("/dev/shm"):  # noqa: S108  # a path in foreign code
        slug = "shm_exhausted"
    return Classification(slug, slug not in _UNSURE) if slug else None


def rebuild(exception_type: str, message: str) -> BaseException:
    """Return an exception of this type with this message.

    Args:
        exception_type: as Python prints it: `FileNotFoundError`, `requests.exceptions.Timeout`.
        message: what follows the colon; the type once more, or nothing, where there was none.
    """
    arguments = () if message in ("", exception_type) else (message,)
    kind = getattr(builtins, exception_type, None)
    if isinstance(kind, type) and issubclass(kind, BaseException):
        if issubclass(kind, OSError) and (found := re.fullmatch(_ERRNO_MESSAGE, message, re.ASCII)):
            return OSError(int(found[1]), found[2], found[4])
        try:
            made: BaseException = kind(*arguments)
        except TypeError:
            # Some, such as UnicodeDecodeError, take more arguments than a message.
            pass
        else:
            return made
    # Known by name only: its library may not be installed.
    module, _, name = exception_type.rpartition(".")
    home = module or ("builtins" if kind else "__main__")
    stand_in: type[Exception] = type(name, (Exception,), {"__module__": home})
    return stand_in(*arguments)


def quotes_a_name(exc: BaseException) -> bool:
    """Return whether the message quotes an identifier of the program, which may contain any word."""
    return not {KeyError, IndexError, AttributeError, NameError, ImportError}.isdisjoint(type(exc).__mro__)


def _of_reader(exc: BaseException) -> Classification | None:
    # A reader's exception about a damaged file may not mention it; that a file was being read does.
    if type(exc) is not EOFError and attribute(exc, "errno") != errno.EINVAL:
        return None
    trace = exc.__traceback__
    for _ in range(_MOST_FRAMES):
        if trace is None:
            break
        if trace.tb_frame.f_globals.get("__name__") == "torch.serialization":
            return Classification("ckpt_corrupt", sure=True)
        trace = trace.tb_next
    return None


def _of_silence(exc: BaseException) -> Classification | None:
    # A time limit within the program is no silent peer, and a truncated text is no closed connection.
    kind, args = type(exc), attribute(exc, "args")
    if kind is TimeoutError and args in ((), ("timed out",)):
        return Classification("peer_timeout", sure=False)
    return Classification("peer_reset", sure=False) if kind is EOFError and args == () else None


def _path(exc: BaseException) -> str:
    try:
        return str(attribute(exc, "filename") or "")[-4096:]
    except Exception:  # noqa: BLE001  # a path object of foreign code
        return ""


def _library(kind: type) -> str:
    module = kind.__module__
    root = module.partition(".")[0] if type(module) is str else ""
    return _LIBRARIES.get(root, root)
