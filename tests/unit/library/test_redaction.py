"""Text of labels: one line, bounded, without secrets."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwarden.redaction import label_text, plain, redact
from trainwarden.signals.pack import load_pack, shipped_packs


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
        ("password: correct horse battery", "battery"),
        ("db_password:   Correct horse-battery staple", "staple"),
        ("localhost:5432:train:app:hunter2", "hunter2"),
        ("*:*:train:app:hunter2", "hunter2"),
        ("WANDB_API_KEY='0123abcd'", "0123abcd"),
        ("run --token abcdef --lr 1", "abcdef"),
        ("-----BEGIN RSA PRIVATE KEY----- MIIEpAIBAAKCAQEA", "MIIEpAIBAAKCAQEA"),
    ],
)
def test_a_secret_is_replaced(text: str, secret: str) -> None:
    redacted = redact(text)
    assert secret not in redacted
    assert "[redacted]" in redacted


# How tokens look that a training's log has shown: {n} is n letters and digits, {n:hex} n hexadecimal digits.
FORMATS = {
    "alibaba": "AccessKeyId LTAI{20} denied",
    "anthropic": "sk-ant-api03-{95}",
    "atlassian": "ATATT3{60}",
    "aws key": "key AKIA{16:upper} used",
    "aws presigned": "GET https://bucket.s3.amazonaws.com/x?X-Amz-Date=20260101&X-Amz-Signature={64:hex}",
    "aws secret": "AWS_SECRET_ACCESS_KEY={40}",
    "aws session": "aws_session_token: IQoJ{80}",
    "azure account": "DefaultEndpointsProtocol=https;AccountName=x;AccountKey={86}==;EndpointSuffix=core.windows.net",
    "azure client secret": "login with abc8Q~{34}",
    "azure sas": "https://x.blob.core.windows.net/c/b?sv=2024&se=2026&sig={43}%3D",
    "azure service bus": "SharedAccessKeyName=root;SharedAccessKey={43}=",
    "basic": "Authorization: Basic {24}",
    "bearer": "got 401 with header Bearer {30}",
    "bitbucket": "ATBB{32}",
    "clearml": "CLEARML_API_SECRET_KEY={50}",
    "comet": "COMET_API_KEY: {25}",
    "cookie": "Cookie: session={40}",
    "curl": "+ curl -s -u admin:{20} https://registry.example.org",
    "databricks": "dapi{32:hex}",
    "datadog": "DD_API_KEY={32:hex}",
    "db pass": "DB_PASS={12}",
    "digitalocean": "dop_v1_{64:hex}",
    "discord": "https://discord.com/api/webhooks/1/{60}",
    "docker login": "+ docker login -u bot -p {24} registry.example.org",
    "docker token": "dckr_pat_{27}",
    "doppler": "dp.pt.{40}",
    "figma": "figd_{40}",
    "github classic": "remote: ghp_{36}",
    "github fine": "github_pat_{22}_{59}",
    "gitlab": "glpat-{20}",
    "google api": "AIza{35}",
    "google oauth": "ya29.a0{60}",
    "google signed": "https://storage.googleapis.com/b/o?X-Goog-Algorithm=A&X-Goog-Signature={60:hex}",
    "grafana": "glsa_{32}_{8:hex}",
    "groq": "gsk_{52}",
    "heroku": "HRKU-{36}",
    "huggingface": "token hf_{34} is invalid",
    "jdbc": "jdbc:postgresql://db/x?user=u&password={12}",
    "jupyter": "http://localhost:8888/lab?token={48:hex}",
    "jwt": "eyJ{20}.eyJ{60}.{43}",
    "kaggle": '{{"username":"u","key_id":1,"api_key":"{32:hex}"}}',
    "linear": "lin_api_{40}",
    "mailgun": "key-{32:hex}",
    "mlflow": "export MLFLOW_TRACKING_PASSWORD={14}",
    "mongodb": "mongodb+srv://app:{16}@cluster0.example.net/x",
    "mysql pwd": "MYSQL_PWD={10}",
    "neptune": "NEPTUNE_API_TOKEN is eyJhcGlfYWRkcmVzcyI6{60}==",
    "netrc": "machine api.wandb.ai login user password {40:hex}",
    "new relic": "NRAK-{27:upper}",
    "ngc": "nvapi-{64}",
    "npm": "//packages.example.org/:_authToken=npm_{36}",
    "odbc": "Driver=ODBC;Server=x;Uid=u;Pwd={12};",
    "openai": "Incorrect API key provided: sk-proj-{48}. You can find your API key at",
    "openai service": "sk-svcacct-{48}",
    "option": "train.py --wandb-api-key {40:hex} --lr 1",
    "passphrase": "passphrase: '{10} {10}'",
    "pem": "-----BEGIN OPENSSH PRIVATE KEY----- b3BlbnNz{60}",
    "perplexity": "pplx-{48}",
    "pgpassword": "PGPASSWORD={12} psql -h db",
    "pip index": "Looking in indexes: https://token:{30}@pypi.example.org/simple",
    "planetscale": "pscale_pw_{43}",
    "pulumi": "pul-{40:hex}",
    "pypi": "pypi-AgEIcHlwaS5vcmc{60}",
    "random": "resuming with {40}",
    "redis": "redis://:{16}@cache:6379/0",
    "replicate": "r8_{37}",
    "rubygems": "rubygems_{48:hex}",
    "sendgrid": "SG.{22}.{43}",
    "sentry": "https://{32:hex}@o1.ingest.sentry.io/2",
    "shopify": "shpat_{32:hex}",
    "slack bot": "xoxb-1234567890-{24}",
    "slack webhook": "https://hooks.slack.com/services/T0/B0/{24}",
    "square": "sq0atp-{22}",
    "sshpass": "+ sshpass -p {12} ssh node",
    "stripe": "sk_live_{24}",
    "supabase": "sbp_{40:hex}",
    "telegram": "https://api.telegram.org/bot123456789:AA{33}/sendMessage",
    "terraform": "{14}.atlasv1.{60}",
    "twilio": "SK{32:hex}",
    "vault": "X-Vault-Token: hvs.{24}",
    "wandb env": "env: WANDB_API_KEY={40:hex}",
    "wandb login": "+ wandb login {40:hex}",
    "wandb relogin": "wandb login --relogin {40:hex}",
    "whsec": "whsec_{32}",
    "x-api-key": "x-api-key: {32}",
    "xai": "xai-{80}",
}
# More of them, and the ways in which programs print a name and its value.
FORMATS |= {
    "airtable": "pat{14}.{64:hex}",
    "anyscale": "esecret_{32}",
    "argv": "argv: ['train.py', '--hub_token', '{30}', '--lr', '1']",
    "argv of a password": "['mount', '--password', '{12}']",
    "brevo": "xkeysib-{64:hex}-{16}",
    "buildkite": "bkua_{40:hex}",
    "bytes": "{{'password': b'{12}'}}",
    "circleci": "CCIPAT_{22}_{40:hex}",
    "conda": "https://conda.anaconda.org/t/{30}/channel",
    "crypt": "bob:$6${8}${86}:19000:0",
    "datadog application": "DD-APPLICATION-KEY: {40:hex}",
    "docker by stdin": "+ echo {20} | docker login registry.example.org -u bot --password-stdin",
    "encoded address": "next=https%3A%2F%2Fuser%3A{16}%40host%2Fx",
    "encoded query": "next=https%3A%2F%2Fhost%2F%3Ftoken%3D{24}",
    "escaped json": '{{\\"password\\": \\"{12}\\", \\"user\\": 1}}',
    "escaped api key": '{{\\"api_key\\":\\"{32}\\"}}',
    "fernet": "resumed with gAAAAA{40}",
    "feishu": "https://open.feishu.cn/open-apis/bot/v2/hook/{36}",
    "google code": "code 4/0A{60}",
    "google refresh": "1//0g{60}",
    "hex of wandb": "wandb: Appending key for api.wandb.ai to your netrc file, key {40:hex}",
    "hex after words": "wandb: the API key you pasted was {40:hex}",
    "hex after a login": "login with {40:hex} failed",
    "hex of a service": "comet_ml got {32:hex} from the prompt",
    "jfrog": "AKCp8{60}",
    "kaggle file": '{{"username":"u","key":"{32:hex}"}}',
    "langsmith": "lsv2_pt_{32:hex}_{10:hex}",
    "license": "license_key: {40}",
    "long option": "--s3.secret-key {40} --lr 1",
    "mailchimp": "{32:hex}-us6",
    "modal": "as-{22}",
    "munge": "MUNGE:{60}:",
    "ngrok": "ngrok config add-authtoken {48}",
    "notion": "secret_{43}",
    "pagerduty": "routing_key: {32}",
    "pair": "[('x-api-key', '{32}')]",
    "pair of a header": "[('Authorization', 'Bearer {32}')]",
    "password with a slash": "postgresql://user:{8}/{8}@db:5432/x",
    "password with an at sign": "postgresql://user:{8}@{8}@db:5432/x",
    "pem body": "{20}/{20}+{22}",
    "pgp": "-----BEGIN PGP PRIVATE KEY BLOCK----- lQOY{60}",
    "pgpass": "db.example.org:5432:train:app:{12}",
    "pgpass of any database": "+ echo *:*:*:app:{12}",
    "phrase": "pass_phrase={16}",
    "pinecone": "pcsk_{8}_{50}",
    "posthog": "phx_{40}",
    "rails": "secret_key_base: {64:hex}",
    "routing": "PD_ROUTING_KEY {32}",
    "s3 address": "s3://{20}:{20}/{18}@bucket/key",
    "sentence": "login failed for bob with password {12}",
    "set of a shell": "+ set -x OPENAI_API_KEY {40}",
    "setenv": "setenv HF_TOKEN {30}",
    "sonar": "sqp_{40:hex}",
    "stdin of sudo": "+ echo {12} | sudo -S apt-get install x",
    "square access": "EAAA{60}",
    "supabase secret": "sb_secret_{31}",
    "tailscale": "tskey-auth-{17}-{32}",
    "unseal key": "Unseal Key 1: {30}/{12}",
    "vast": "vastai set api-key {64:hex}",
    "vault before 1.10": "s.{24}",
    "wandb v1": "wandb_v1_{77}",
    "yaml block": "db_password: |\n  {16}",
}
# And commands, headers, XML and environments of Kubernetes.
FORMATS |= {
    "apache hash": "bob:$apr1${8}${22}",
    "arrow": "password -> {12}",
    "authorization of splunk": "Authorization: Splunk {36}",
    "colon of full width": "密码\uff1a{12}",
    "credentials": "creds={8}:{12}",
    "doppler service": "dp.st.prd.{43}",
    "environment of a pod": '{{"name": "HF_TOKEN", "value": "{24}"}}',
    "google hmac": "GOOG1E{56:upper}",
    "hmac": "hmac={64:hex}",
    "ipmitool": "ipmitool -I lanplus -U ADMIN -P {12} chassis power status",
    "lftp": "lftp -u bob,{12} ftp.example.org",
    "lower case key": "s3_key={24}",
    "minio client": "mc alias set local http://minio:9000 {12} {20}",
    "personal access token": "AZURE_DEVOPS_EXT_PAT={52}",
    "ping": "https://hc-ping.com/{36}",
    "prompt": "Password for user bob: {12}",
    "redis client": "redis-cli -h cache -a {16} ping",
    "archive": "7z a -p{12} out.7z run/",
    "openssl": "openssl enc -aes-256-cbc -k {12} -in a -out b",
    "openssl source": "openssl enc -aes-256-cbc -pass pass:{12} -in a -out b",
    "smtp": "AUTH PLAIN {24}",
    "snmp": "snmpget -v2c -c {12} switch-3 sysUpTime",
    "snmp v3": "snmpwalk -v3 -u bob -A {12} switch-3",
    "stripe letters": "sk_live_{24:letters}",
    "token in words": "the token {24} was refused",
    "vault role": "secret_id={36}",
    "voyage": "pa-{43}",
    "walrus": "password := {12}",
    "wifi": "psk={16}",
    "xml": "<dbPassword>{12}</dbPassword>",
    "xml attribute": '<add key="Password" value="{12}"/>',
}
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


@pytest.mark.parametrize("name", FORMATS)
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


@pytest.mark.parametrize(
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
        "2026-01-02:1234:56:789:abc node1:12345:12400 tcp://10.0.0.1:29500:x",
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
