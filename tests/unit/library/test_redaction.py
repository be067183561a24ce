"""Text of labels: one line, bounded, without secrets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from trainwarden.redaction import label_text, name_text, plain, redact
from trainwarden.signals.pack import load_pack, shipped_packs


@cases(
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
        ("password: correct horse battery", "battery"),
        ("db_password:   Correct horse-battery staple", "staple"),
        ('passphrase "correct horse battery"', "horse"),
        ("password 'correct horse battery' was refused", "horse"),
        ("+ zip -P hunter2pw a.zip run/", "hunter2pw"),
        ("+ unzip -P hunter2pw a.zip", "hunter2pw"),
        ("+ htpasswd -b file user hunter2pw", "hunter2pw"),
        ("> net user bob hunter2pw /add", "hunter2pw"),
        ("+ sudo -S true <<< hunter2pw", "hunter2pw"),
        ("+ sudo -S <<< 'hunter2 pw'", "hunter2"),
        ("localhost:5432:train:app:hunter2", "hunter2"),
        ("*:*:train:app:hunter2", "hunter2"),
        ("WANDB_API_KEY='0123abcd'", "0123abcd"),
        ("PAT=q7hunter2", "q7hunter2"),
        ("AZURE_DEVOPS_PAT=q7hunter2", "q7hunter2"),
        ("POST /acs SAMLResponse=PHNhbWxwOlJlc3Bvbn", "PHNhbWxwOlJlc3Bvbn"),
        ("run --token abcdef --lr 1", "abcdef"),
        ("-----BEGIN RSA PRIVATE KEY----- MIIEpAIBAAKCAQEA", "MIIEpAIBAAKCAQEA"),
    ],
)
def test_a_secret_is_replaced(text: str, secret: str) -> None:
    redacted = redact(text)
    assert secret not in redacted
    assert "[redacted]" in redacted


FORMATS: dict[str, str] = yaml.safe_load(Path(__file__).with_name("secret_formats.yaml").read_text(encoding="utf-8"))
ALPHABETS = {
    "": "aB3dE6gH1jK4mN7pQ2sT5vW8xY9z",
    "hex": "0a9b8c7d6e5f41",
    "upper": "A2B7C4D3E6",
    "letters": "aBcDeFgHiJkLmNoP",
}


def filled(template: str) -> tuple[str, list[str]]:
    """Return the line that a template describes, and the secrets in it."""
    secrets: list[str] = []

    def fill(match: re.Match[str]) -> str:
        letters = ALPHABETS[match["alphabet"] or ""]
        secrets.append((letters * 10)[len(secrets) :][: int(match["length"])])
        return secrets[-1]

    line = re.sub(r"\{(?P<length>\d+)(?::(?P<alphabet>\w+))?\}", fill, template)
    return line.replace("{{", "{").replace("}}", "}"), secrets


@cases("name", FORMATS)
def test_no_part_of_a_token_of_a_known_format_is_shown(name: str) -> None:
    line, secrets = filled(FORMATS[name])
    label = label_text(line, 400)
    assert secrets
    for secret in secrets:
        parts = {secret[start : start + 6] for start in range(len(secret) - 5)}
        assert not [part for part in parts if part in label], label


def test_examples_of_the_shipped_patterns_stay_as_they_are() -> None:
    examples = [
        line
        for name in shipped_packs()
        for signal in load_pack(name).signals
        for example in signal.examples
        for line in example.splitlines()
    ]
    assert len(examples) > 500
    changed = [line for line in map(plain, examples) if redact(line) != line]
    assert not changed


def test_what_stands_around_a_secret_stays() -> None:
    assert redact("a password=b c") == "a password=[redacted] c"
    assert redact("user: a, password: b c, host: d") == "user: a, password: [redacted] c, host: d"
    assert redact("GET https://u:p@host/x failed") == "GET https://[redacted]host/x failed"


@cases(
    "text",
    [
        "KeyError: 'token'",
        "pad_token='<pad>', eos_token: </s>, unk_token=[UNK]",
        "max_tokens=4096 num_tokens: 128 token_count=7",
        "Loading checkpoint shards from models--meta-llama--Llama-3.1-70B-Instruct-2024-07-23",
        "commit 3f785a0b1c2d4e5f60718293a4b5c6d7e8f90123",
        "image sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE + 0x98",
        "GPU-5a1e2c2d-7f3b-4c0e-9d0a-0b1c2d3e4f50: Xid 79, pid=4711, GPU has fallen off the bus.",
        "authentication failed: password is wrong",
        "pk_field_name missing in fw_gradient_accumulation_steps and ops_per_second_average",
        "docker run -p 8080:80 image; mkdir -p outputs/run-7",
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.10 GiB total capacity)",
        "loss is nan at step 1200, tokens: 5",
        "file:///data/shard-0001.tar: No such file or directory",
        "bearer authentication failed",
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE)",
        "torch.cuda.OutOfMemoryError at /opt/train.py:120",
        "tcp://10.0.0.1:29500 refused, user@host is not reachable",
        "ExpiredToken: The provided token has expired.",
        "KeyError: \"['token', 'label'] not in index\"",
        "unexpected keyword arguments: 'api_key', 'model'",
        "Missing keys: ['token', 'user'], keys: ['input_ids', 'attention_mask', 'token_type_ids']",
        "num_key_value_heads: 8, key_states: torch.Size([1, 8, 128])",
        "--tokenizer meta-llama/Llama-3.1-8B --max-tokens 4096 --pad-token <pad> --eos-token </s> --add-bos-token true",
        "--sort-key length --first-pass-steps 100 --pass 3",
        "forward pass 12.3ms backward pass 40ms, pass 2 of 3",
        "NCCL WARN Bootstrap : no socket interface found on node1:12345:12400 [0]",
        "docker://nvcr.io/nvidia/pytorch:24.01-py3@sha256:9f86d081884c",
        "oci://registry:5000/img:1@sha256:abcd https://host:8443/path?x=a@b",
        "The AWS Access Key Id you provided does not exist in our records.",
        "Unable to locate credentials s3://bucket/training-runs/20240102-030405/metadata.json",
        "Check your key and signing method. Invalid username or password.",
        "wandb: ERROR api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        "wandb: Run data is saved locally in /home/x/wandb/run-20240102_030405-abc123de",
        "slurmstepd: error: Munge decode failed: Expired credential",
        "auth: munge plugin not found",
        "sig=11 (SIGSEGV), pwd=/home/bob/run pwd: /scratch/run",
        "s.decode() failed; rnd_state restored; fm1_score=0.81 sk_metrics_f1 secret_sauce_layer",
        "pat_length=12, sk-learn 1.4.2, phc_loss 0.3, ak-47 dataset",
        "models/llama/step/00012000/rank/0003/optim/0007/shard/0001/of/0016",
        "Permission denied (publickey,password). max password attempts exceeded",
        "Namespace(tokenizer='gpt2', lr=0.1, pad_token_id=0)",
        "TrainingArguments(push_to_hub_token=<PUSH_TO_HUB_TOKEN>, hub_token=<HUB_TOKEN>)",
        "echo done | tee log; docker run -e NCCL_DEBUG=INFO image",
        "arn:aws:ec2:us-east-1:123456789012:instance/i-0123456789abcdef0",
        "md5 d41d8cd98f00b204e9800998ecf8427e mismatch for shard-17.tar",
        "torch2.5.1+cu124 TransformerEngineBaseModule.forward modeling_llama.LlamaForCausalLM",
        "auth token expired 30 seconds ago, api key rotated, license key missing",
        "cache_key=3f785a0b1c2d4e5f60718293a4b5c6d7e8f90123 sort_key=length20 primary_key: id",
        "wandb: git commit 3f785a0b1c2d4e5f60718293a4b5c6d7e8f90123, keys of revision 3f785a0b1c2d4e5f60718293a4b5c6d7",
        "wandb: artifact digest d41d8cd98f00b204e9800998ecf8427e, kaggle run id d41d8cd98f00b204e9800998ecf8427e",
        '{"name": "pad_token", "value": "<pad>"} {"name": "max_tokens", "value": 4096}',
        "redis-cli ping; unzip -p a.zip; at token 128000 of 131072, token limit reached; password for user bob: wrong",
        "openssl version -a; openssl req -keyout key.pem; 7z x a.7z; snmpd -f; snmptrapd started -c",
        "<token>, eos_token=<eos>, FILE_PAT=*.parquet; mc cp a b; auth plain text",
        "fe80:0000:dead:beef:1234 00000000:3b:00.0 aa:1111:bb:cc:dd:ee train.py:1200:fit:INFO:loss is nan",
        "echo step 10 | tee log; zip -r -9 out.zip run/; unzip -o -d /data a.zip; printf done | sort",
        "the neural net user study used 8 GPUs; net use of memory: 12 GiB; identified by rank 3",
        "ssh-keygen -t ed25519 -N '' -f key; cat <<< EOF; sudo -n true <<< x",
        "password 'none' given; no password \"true\"; unexpected keyword argument 'password'",
        "sqlplus: command not found; git log -p; mongo: connect ECONNREFUSED 10.0.0.1:27017; curl -u",
        "AUTH sys is not supported; LOGIN node n12 failed; smbclient: not found; docker logs -f train-7",
        "2026-01-02:1234:56:789:abc node1:12345:12400 tcp://10.0.0.1:29500:x",
        "bypass=0 compass=12 pass=1 cuda pass: 3 ms, pw=0.5 PW: 12 GiB, sig=SIGTERM auth: disabled hmac=off",
        "signature: forward(self, x, mask=None) signature: (x: Tensor), authorization: disabled",
        'send "rank 0 done" to master; p2p send: 2.0 GB/s; sendline count: 12; send buffer size 4194304',
        "actor Trainer:worker-1@10.0.0.2:6379 died; rank0:gpu0@node1:29500 joined; ray: user@login01:22",
        "curl -sSL https://x/get.py -o get.py; http server on :8080; az vm list -p none; https redirect off",
        "private.key: No such file or directory; access.key: [Errno 2]; 128 key: value pairs; storage keys: none",
        'name: pad_token value: 3, {"name": "loss", "value": 0.12} "Value": "0.12", "Name": "accuracy"',
        'password is "not set", passcode required, pass phrase not needed, app keys: 12, app_key_count=3',
        "pushover: notification sent ok, pushover_notify=true; syt_loss=0.1; X-Honeycomb disabled; x-axis: steps",
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


NAMES = (
    "sk-gpu-01",
    "rk-h100-03.dc1",
    "ops-gpu-node-0001-rack2",
    "kubernetes:sk-llama-7b-worker:0",
    "ray:pk-llama-2026:0",
)


@cases("name", NAMES)
def test_a_name_that_begins_as_a_token_does_stays(name: str) -> None:
    assert name_text(name) == name
    assert label_text(name) != name  # of free text it is not known that this is no token


def test_a_name_is_one_plain_line_of_bounded_length() -> None:
    assert name_text("a\nb\x1b[1m  \u202ec ") == "a b c"
    assert name_text("ab" * 200, 64) == "ab" * 32
    assert name_text("é" * 100, 5) == "éé"
