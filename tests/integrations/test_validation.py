"""`trainwarden validate-job` with a real, tiny model of Transformers."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from trainwarden import cli
from trainwarden_exporter.finetuning.validation import FineTuningValidator

WORDS = ("<unk>", "the", "answer", "is", "blue")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose every next word is `blue`: its bias outweighs what it computes."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<unk>").save_pretrained(folder)
    config = GPT2Config(
        vocab_size=len(WORDS), n_positions=16, n_embd=8, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0,
        tie_word_embeddings=False,
    )  # fmt: skip
    network = GPT2LMHeadModel(config)
    network.transformer.ln_f.weight.data.zero_()
    network.transformer.ln_f.bias.data.fill_(1.0)
    network.lm_head.weight.data.zero_()
    network.lm_head.weight.data[WORDS.index("blue")] = 1.0
    network.save_pretrained(folder)
    return folder


def test_a_model_that_generates_the_keyword_passes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["validate-job", "--model-path", str(model), "--prompt", "the answer is", "--expect", "Blue"]
    assert cli.main([*argv, "--max-new-tokens", "3", "--trust", "complete"]) == 0
    told = capsys.readouterr().out
    assert "✓ PASS - model_output\n  Model generated 1 outputs\n  Score: 1.0000\n" in told
    assert "✓ PASS - checkpoint_integrity" in told


def test_a_model_without_the_keyword_fails_with_its_share(model: Path) -> None:
    found = FineTuningValidator(max_new_tokens=2).validate_model_output(model, ["the"], ["blue", "red"])
    assert (found.passed, found.score, found.message) == (False, 0.5, "Outputs do not contain: red")


def test_a_folder_that_is_no_model_fails_and_says_why(tmp_path: Path) -> None:
    found = FineTuningValidator().validate_model_output(tmp_path, ["the"])
    assert found.passed is False
    assert "Model cannot generate" in found.message
