"""Stand-ins for torch and transformers, whose models answer each prompt with the name of their folder."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest


class _Words(list[str]):
    @property
    def shape(self) -> tuple[int, int]:
        return 1, len(self)


class _Inputs(dict[str, Any]):
    def to(self, _device: str) -> _Inputs:
        return self


class _Tokenizer:
    pad_token_id = eos_token_id = 0

    def __call__(self, prompt: str, return_tensors: str) -> _Inputs:
        assert return_tensors == "pt"
        return _Inputs(input_ids=_Words(prompt.split()))

    def decode(self, words: list[str], skip_special_tokens: bool) -> str:
        return " ".join(words)


class _Model:
    device = "cpu"

    def __init__(self, folder: Path) -> None:
        self.answer = [] if folder.name == "silent" else [folder.name]

    def to(self, _device: str) -> _Model:
        return self

    def eval(self) -> _Model:
        return self

    def generate(self, input_ids: _Words, **_settings: Any) -> list[list[str]]:
        return [[*input_ids, *self.answer]]


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `import torch` and `import transformers` find the stand-ins."""
    cuda = SimpleNamespace(is_available=lambda: False)
    tokenizers = SimpleNamespace(from_pretrained=lambda _path, **_settings: _Tokenizer())
    models = SimpleNamespace(from_pretrained=lambda path, **_settings: _Model(Path(path)))
    torch = SimpleNamespace(cuda=cuda, no_grad=contextlib.nullcontext)
    monkeypatch.setitem(sys.modules, "torch", torch)
    transformers = SimpleNamespace(AutoTokenizer=tokenizers, AutoModelForCausalLM=models)
    monkeypatch.setitem(sys.modules, "transformers", transformers)


def uninstall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let neither be there."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "transformers", None)
