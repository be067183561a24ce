"""Let a model of Transformers continue a text. torch and transformers are imported here, when they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


class CannotGenerate(Exception):
    """The model gave no text; the message is the reason. `is_missing`: because a library is not installed."""

    def __init__(self, message: str, *, is_missing: bool = False) -> None:
        super().__init__(message)
        self.is_missing = is_missing


def generate(model_path: str, prompts: Sequence[str], max_new_tokens: int) -> list[str]:
    """Return what the model adds to each prompt, by greedy decoding, on the GPU where there is one.

    Nothing is downloaded and no code of the model's folder is run.

    Raises:
        CannotGenerate: the model cannot be loaded or fails, or transformers or torch is not installed.
    """
    if not Path(model_path).is_dir():
        raise CannotGenerate(f"There is no model: {model_path}")
    try:
        import torch  # noqa: PLC0415  # see above
        from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415
    except ImportError as error:
        raise CannotGenerate(f"{error.name} is not installed: the model was not tried", is_missing=True) from None
    try:
        own: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        tokenizer = AutoTokenizer.from_pretrained(model_path, **own)
        model = AutoModelForCausalLM.from_pretrained(model_path, **own)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = model.to(device).eval()
        return [_continue(torch, tokenizer, model, prompt, max_new_tokens) for prompt in prompts]
    except Exception as error:  # whatever breaks in it, the model does not generate
        reason = str(error).strip().splitlines()
        raise CannotGenerate(f"Model cannot generate: {type(error).__name__}: {reason[0] if reason else ''}") from error


def _continue(torch: Any, tokenizer: Any, model: Any, prompt: str, max_new_tokens: int) -> str:
    inputs = tokenizer(prompt, return_tensors="pt").to(model.device)
    inputs.pop("token_type_ids", None)
    padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    with torch.no_grad():
        output = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False, pad_token_id=padding)
    text: str = tokenizer.decode(output[0][inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return text
