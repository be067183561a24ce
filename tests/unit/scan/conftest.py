from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainwarden.scan.command import main

STEPS = "".join(f"iteration {step}/ 5000 | lm loss: 2.{step:04d}E+00 | grad norm: 1.0 |\n" for step in range(1, 41))
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79 GiB\n"
LATER = "".join(f"iteration {step}/ 5000 | lm loss: 2.{step:04d}E+00 | grad norm: 1.0 |\n" for step in range(41, 81))


@pytest.fixture(autouse=True, scope="module")
def texts_are_compiled_once(texts_compiled_once: None) -> None:
    """Each test makes a reader of logs, or several."""


@dataclass(frozen=True)
class Scanned:
    status: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def scan(capsys: pytest.CaptureFixture[str]) -> Callable[..., Scanned]:
    def scan(*arguments: str | Path) -> Scanned:
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = int(end.code or 0)
        return Scanned(status, *capsys.readouterr())

    return scan


@pytest.fixture
def log(tmp_path: Path) -> Callable[..., Path]:
    def log(content: str | bytes | Iterable[str], name: str = "train.log") -> Path:
        path = tmp_path / name
        text = content if isinstance(content, (str, bytes)) else "".join(content)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return log
