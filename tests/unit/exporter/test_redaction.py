"""Text of labels: one line, bounded, without secrets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwarden_exporter.core.redaction import label_text, redact


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("key AKIAIOSFODNN7EXAMPLE used", "AKIAIOSFODNN7EXAMPLE"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI"),
        ("aws_session_token: IQoJb3JpZ2luX2Vj", "IQoJb3JpZ2luX2Vj"),
        ("Authorization: Bearer abc", "abc"),
        ("{'authorization': 'Basic dXNlcjpwYXNz'}", "dXNlcjpwYXNz"),
        ("sent bearer abcdefghijklmnopqrst", "abcdefghijklmnopqrst"),
        ("HF_TOKEN=hf_abcdefghijklmnop", "hf_abcdefghijklmnop"),
        ("token hf_abcdefghijklmnop refused", "hf_abcdefghijklmnop"),
        ("openai sk-proj-abcdef123456", "sk-proj-abcdef123456"),
        ("slack xoxb-1234567890-abcdef", "xoxb-1234567890-abcdef"),
        ("git ghp_16C7e42F292c6912E7710c838347Ae178B4a", "ghp_16C7e42F"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "eyJzdWIi"),
        ("clone https://user:s3cr3t@example.org/x.git", "s3cr3t"),
        ("connect postgresql+psycopg://u:p%40ss@db/x", "p%40ss"),
        ("post https://hooks.slack.com/services/T0/B0/abcdef", "abcdef"),
        ("password=hunter2", "hunter2"),
        ('"password": "two words"', "two words"),
        ("PASSWD: hunter2,next", "hunter2"),
        ("WANDB_API_KEY='0123abcd'", "0123abcd"),
        ("run --token abcdef --lr 1", "abcdef"),
        ("-----BEGIN RSA PRIVATE KEY----- MIIEpAIBAAKCAQEA", "MIIEpAIBAAKCAQEA"),
    ],
)
def test_a_secret_is_replaced(text: str, secret: str) -> None:
    redacted = redact(text)
    assert secret not in redacted
    assert "[redacted]" in redacted


def test_what_stands_around_a_secret_stays() -> None:
    assert redact("a password=b c") == "a password=[redacted] c"
    assert redact("GET https://u:p@host/x failed") == "GET https://[redacted]host/x failed"


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.10 GiB total capacity)",
        "loss is nan at step 1200, tokens: 5",
        "file:///data/shard-0001.tar: No such file or directory",
        "bearer authentication failed",
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE)",
        "torch.cuda.OutOfMemoryError at /opt/train.py:120",
        "tcp://10.0.0.1:29500 refused, user@host is not reachable",
    ],
)
def test_plain_words_stay_as_they_are(text: str) -> None:
    assert label_text(text) == text


def test_control_characters_and_terminal_colours_are_removed() -> None:
    assert label_text("\x1b[31mred\x1b[0m\tand\r\nmore\x00\u202e \x1b]0;title\x07end") == "red and more end"


def test_a_label_is_cut_between_characters() -> None:
    assert label_text("é" * 150) == "é" * 100
    assert label_text("x" * 199 + "é") == "x" * 199
    assert label_text("€" * 200, 300) == "€" * 100


@pytest.mark.parametrize("length", [190, 4090])
def test_a_secret_at_the_cut_is_not_shown_in_part(length: int) -> None:
    filling = "".join("y " for _ in range(length // 2))
    text = f"{filling}AKIAIOSFODNN7EXAMPLE" + " z" * 100
    assert "AKIA" not in label_text(text, length + 10)


@given(st.text(alphabet=st.characters()))
def test_any_text_becomes_a_label_that_can_be_encoded(text: str) -> None:
    label = label_text(text)
    assert len(label.encode("utf-8")) <= 200
    assert "\n" not in label


def test_a_huge_text_costs_no_more_than_a_long_one() -> None:
    assert len(label_text("a" * 5_000_000 + " b")) <= 200
