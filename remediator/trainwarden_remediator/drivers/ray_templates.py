"""What Ray does not return of a job and a restart needs: what its entrypoint reserves, and copies of its packages.

One file for each run, `<run id>.yaml` in `--ray-template-dir`; `trainwarden-remediator ray register` writes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from trainwarden.clients.ray_jobs import RayReserved
from trainwarden.clients.ray_package import MAX_PACKAGE_BYTES, UPLOADED, digest
from trainwarden.errors import UsageError
from trainwarden.record.folder import replace_file
from trainwarden.regular_file import read_regular_file
from trainwarden.yaml_file import read_yaml
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.incidents.incident import clean
from trainwarden_remediator.validation import problems_of

# Ray keeps memory in units of its own.
AMOUNT_TOLERANCE = 1e-3

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RayTemplate(BaseModel):
    """One file.

    Attributes:
        ray_train_max_failures: how often Ray Train restarts the workers itself, -1 without end.
        packages: by the name of a package, `x.zip` of `gcs://x.zip`, the copy of it: a file in the same folder.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    entrypoint_num_cpus: Amount = 0.0
    entrypoint_num_gpus: Amount = 0.0
    entrypoint_memory: Annotated[int, Field(ge=0)] = 0
    entrypoint_resources: dict[str, Amount] = {}
    entrypoint_label_selector: dict[str, str] = {}
    ray_train_max_failures: Annotated[int, Field(ge=-1)] | None = None
    packages: dict[str, str] = {}

    @field_validator("entrypoint_num_gpus")
    @classmethod
    def _whole(cls, gpus: float) -> float:
        if gpus > 1 and gpus != int(gpus):
            raise ValueError(f"{gpus:g}: Ray takes a fraction of one GPU, or a whole number of them")
        return gpus

    @field_validator("packages")
    @classmethod
    def _in_folder(cls, packages: dict[str, str]) -> dict[str, str]:
        for name in packages.values():
            if not name or name.startswith(".") or "/" in name:
                raise ValueError(f"{name!r}: expected the name of a file in the same folder")
        return packages

    def copy_of(self, package: str) -> str | None:
        """Return the file that is the copy of a package; None without one.

        A restart uploads it under another name, which ends with the same digest as the file that RayTemplates writes.
        """
        ending = package.removeprefix(UPLOADED)
        uploaded = (file for file in self.packages.values() if ending != package and file.endswith(f"-{ending}"))
        return self.packages.get(package) or next(uploaded, None)

    @property
    def reserved(self) -> RayReserved:
        """What the entrypoint reserves."""
        return RayReserved(
            self.entrypoint_num_cpus,
            self.entrypoint_num_gpus,
            self.entrypoint_memory,
            self.entrypoint_resources,
            self.entrypoint_label_selector,
        )


class RayTemplates:
    """The files of a folder; read anew each time, for they may be written beside the service."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def path(self, run_id: str) -> Path | None:
        """Return where the file of a run is, or would be; None without a folder. The id must be well formed."""
        return None if self.folder is None else self.folder / f"{run_id}.yaml"

    def of(self, run_id: str) -> RayTemplate | None:
        """Return the template of a run; None where there is none. Raises ConfigError that names file and key."""
        path = self.path(run_id)
        try:
            if path is None or not path.exists():
                return None
        except OSError as error:
            raise ConfigError([f"{path}: {error.strerror}"]) from None
        try:
            document = read_yaml(path)
            return RayTemplate.model_validate(document.data() or {})
        except UsageError as error:
            raise ConfigError([str(error)]) from None
        except ValidationError as error:
            raise ConfigError([f"{path}: {each}" for each in problems_of(error, RayTemplate, document)]) from None

    def package(self, name: str) -> bytes:
        """Return a copy of a package. Raises ConfigError."""
        if self.folder is None:
            raise ConfigError([f"--ray-template-dir: missing; expected a folder that has {name}"])
        try:
            content = read_regular_file(self.folder / name, MAX_PACKAGE_BYTES + 1)
        except OSError as error:
            raise ConfigError([f"{self.folder / name}: {error.strerror}"]) from None
        if len(content) > MAX_PACKAGE_BYTES:
            raise ConfigError([f"{self.folder / name}: more than {MAX_PACKAGE_BYTES} bytes, the most that Ray keeps"])
        return content

    def write(
        self,
        run_id: str,
        reserved: RayReserved,
        packages: Mapping[str, bytes],
        train_max_failures: int | None = None,
    ) -> Path:
        """Write the template of a run, with copies of its packages; return its file. Raises ConfigError."""
        path = self.path(run_id)
        if self.folder is None or path is None:
            raise ConfigError(["--ray-template-dir: missing; expected the folder of templates"])
        files = {name: f"{run_id}-{digest(content)}.zip" for name, content in packages.items()}
        document = reserved.as_request()
        if train_max_failures is not None:
            document["ray_train_max_failures"] = train_max_failures
        if files:
            document["packages"] = files
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name, file in files.items():
                replace_file(self.folder / file, packages[name], durable=True, mode=0o600)
            # JSON is YAML, and needs no writer of it.
            replace_file(path, (json.dumps(document, indent=2) + "\n").encode(), durable=True, mode=0o600)
        except OSError as error:
            raise ConfigError([f"--ray-template-dir: {error.filename or self.folder}: {error.strerror}"]) from None
        return path


def shown(reserved: RayReserved | None) -> str:
    """Return what is reserved as words; empty where nothing is."""
    amounts = reserved.amounts() if reserved else {}
    parts = [f"{amount:g} {clean(name, 40)}" for name, amount in sorted(amounts.items())]
    labels = reserved.label_selector if reserved else {}
    return ", ".join([*parts, *(f"nodes with {clean(name, 60)}={clean(value, 60)}" for name, value in labels.items())])


def equal(one: RayReserved, other: RayReserved) -> bool:
    """Return whether both reserve the same."""
    first, second = one.amounts(), other.amounts()
    return (
        first.keys() == second.keys()
        and all(math.isclose(first[name], second[name], rel_tol=AMOUNT_TOLERANCE) for name in first)
        and dict(one.label_selector) == dict(other.label_selector)
    )
