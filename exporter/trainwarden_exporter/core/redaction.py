"""Text from logs and records made fit for a label: no secrets, no control characters, bounded in bytes."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

MAX_INPUT = 4096
CACHED_INPUT = 256
REDACTED = "[redacted]"

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")

# Tokens that show by their first characters whose they are, with what follows at least.
_PREFIXED = (
    r"(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z0-9]{12,}",  # AWS
    r"(?:LTAI|AKID)[A-Za-z0-9]{12,}",  # Alibaba, Tencent
    r"AIza[\w-]{30,}",  # Google
    r"ya29\.[\w.-]{8,}",
    r"GOCSPX-[\w-]{10,}",
    r"(?:hf_|api_org_)[A-Za-z0-9]{12,}",  # Hugging Face
    r"(?:sk|pk|rk)[-_](?=[\w-]*\d)[\w-]{6,}",  # OpenAI, Anthropic, Stripe, Langfuse
    r"whsec_\w{6,}",
    r"(?:gsk|r8|fw|rpa|tgp_v1|pat|npm|pul|rubygems|sbp|pypi|ops|ntn)[-_](?=(?:[\w-]*\d){2})[\w-]{16,}",
    r"(?:pplx|xai|nvapi|csk)-[\w-]{6,}",
    r"(?:gh[opsur]_|github_pat_)\w{6,}",
    r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent)-[\w.-]{6,}",
    r"(?:ATATT3|ATCTT3|ATBB)[\w=-]{8,}",
    r"(?:xox[a-z]|xapp)-[\w-]{6,}",  # Slack
    r"SG\.[\w-]{10,}\.[\w-]{10,}",
    r"key-[0-9a-f]{32}",
    r"(?:AC|SK)[0-9a-f]{32}",
    r"dapi[0-9a-f]{16,}(?:-\d)?",  # Databricks
    r"dckr_(?:pat|oat)_[\w-]{6,}",
    r"do[opr]_v1_\w{8,}",
    r"HRKU-[\w-]{8,}",
    r"hv[sbr]\.[\w-]{8,}",  # Vault
    r"\w{14}\.atlasv1\.[\w-]{8,}",
    r"(?:glsa|glc)_[\w+/=]{8,}",
    r"(?:NRAK|NRII)-[\w-]{8,}",
    r"sntry[su]_[\w+/=-]{8,}",
    r"(?:lin_api|figd|shp(?:at|ca|pa|ss)|pscale_(?:tkn|pw|oauth)|dp\.(?:pt|st|ct|sa|scim|audit)|PMAK|sq0[a-z]{3})[-_.][\w-]{6,}",
    r"AGE-SECRET-KEY-1\w+",
    r"eyJ[\w-]{8,}(?:\.[\w-]{4,}(?:\.[\w-]*)?|[\w+/=-]{24,})",  # JSON in base64: JWT, Neptune, Grafana
    r"\w{3}8Q~[\w.~-]{20,}",  # Azure AD
    r"[MNO][A-Za-z\d_-]{23,}\.[\w-]{6}\.[\w-]{27,}",  # Discord
    r"\d{8,10}:AA[\w-]{30,}",  # Telegram
)
# Names of secrets. After the first kind of name any value is one; after the second not a number, a flag or a `<pad>`.
_SURE = (
    r"(?i:pass(?:word|wd|phrase)?|pwd|secret|credentials?"
    r"|(?:api|access|private|account|secret|shared[_-]?access|signing|encryption|auth|master)[ _-]?key(?:[ _-]?id)?)"
)
_LIKELY = (
    r"(?:[A-Z0-9]_KEY|(?i:token|cookie|sig(?:nature)?|auth"
    r"|x-(?:amz|goog)-(?:signature|credential|security-token)|(?<=[?&])key))"
)
_VALUE = r"(?:\"[^\"]*\"?|'[^']*'?|[^\s,;&\"')\]}]+)"
_HARMLESS = r"(?![\"']?(?:\d{1,9}|true|false|none|null|<[^>]*>?|\[\w+\]|redacted|\*+)(?:[\s,;&\"')\]}.]|$))"

# Each keeps what stands before the secret, so that a reader still sees what kind it was.
_SECRETS = tuple(
    re.compile(f"(?P<kept>{kept}){secret}")
    for kept, secret in (
        ("", r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*"),
        (r"[A-Za-z][A-Za-z0-9+.-]{0,30}://", r"[^\s/@]+@"),
        (r"(?i:\bauthorization[\"']?\s*[=:]\s*[\"']?)", r"(?i:(?:bearer|basic|token)\s+)?[^\s\"']+"),
        (r"(?i:\b(?:bearer|basic)\s+)", r"[A-Za-z0-9._~+/=-]{16,}"),
        (r"(?i:\b(?:set-)?cookie:\s*)", r"\S.*"),
        ("", rf"(?<![A-Za-z0-9])(?:{'|'.join(_PREFIXED)})"),
        (r"(?i:hooks\.slack(?:-gov)?\.com/)(?:services|workflows|triggers)/", r"\S+"),
        (r"(?i:discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/webhookb2/|api\.telegram\.org/bot)", r"\S+"),
        (
            rf"{_SURE}[\"']?(?:\s*[=:]\s*|\s+provided:\s+|\s+is\s+(?=\S*\d))",
            rf"(?!\[redacted\]|(?i:none|null)\b){_VALUE}",
        ),
        (rf"{_LIKELY}[\"']?\s*[=:]\s*", rf"(?i:{_HARMLESS}){_VALUE}"),
        (
            r"(?i:--?(?:password|passwd|pass|passphrase|token|secret|api[-_]key|auth[-_]token|access[-_]key))[\s=]+",
            r"[^\s-]\S*",
        ),
        (r"(?i:\b(?:curl|wget)\b[^|;]{0,200}\s(?:-u|--user)[\s=]*[\"']?[^\s:\"']{1,64}:)", r"[^\s\"']+"),
        (
            r"(?i:\b(?:docker|podman|sshpass|mysql|mysqldump|ldapsearch|oc|helm)\b[^|;]{0,200}?\s-[pw]\s?)",
            r"(?![\d:]+\b)[^\s-]\S*",
        ),
        (r"(?i:\bwandb(?:\.exe)?\s+login\s+(?:--\S+\s+)*)", r"[^\s-]\S{15,}"),
        (r"(?i:\blogin\s+\S+\s+password\s+)", r"\S+"),
    )
)
# What has no name and no known beginning: letters and digits at random, unlike words, paths, hashes and symbols of C++.
_WORD = re.compile(r"(?<![\w./+-])[\w+-]{24,}={0,2}(?![\w./])")
_LONG_PART = re.compile(r"[A-Za-z0-9]{24,}")


def redact(text: str) -> str:
    """Return the text with everything that looks like a secret replaced."""
    for pattern in _SECRETS:
        text = pattern.sub(lambda match: match["kept"] + REDACTED, text)
    return _WORD.sub(lambda match: REDACTED if _is_random(match[0]) else match[0], text)


def _is_random(word: str) -> bool:
    return not word.startswith("_Z") and any(
        len(re.findall("[a-z]", part)) > 1 and len(re.findall("[A-Z]", part)) > 1 and len(re.findall(r"\d+", part)) > 2
        for part in _LONG_PART.findall(word)
    )


def label_text(text: str, limit: int = 200) -> str:
    """Return the text as one line of at most `limit` bytes of UTF-8, cut between characters, without secrets."""
    if len(text) <= CACHED_INPUT:
        return _cached(text, limit)
    if len(text) > MAX_INPUT:
        # A secret cut in two would not be known as one: cut between words.
        text = text[:MAX_INPUT].rpartition(" ")[0]
    return truncate(redact(plain(text)), limit)


@lru_cache(maxsize=4096)  # the same few texts come with every sample
def _cached(text: str, limit: int) -> str:
    return truncate(redact(plain(text)), limit)


def plain(text: str) -> str:
    """Return the text without terminal escapes, control and format characters and lone surrogates, on one line."""
    text = _ESCAPES.sub("", text)
    return " ".join("".join(char if _printable(char) else " " for char in text).split())


def truncate(text: str, limit: int) -> str:
    """Return at most `limit` bytes of the text's UTF-8, cut between characters."""
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def _printable(char: str) -> bool:
    return not unicodedata.category(char).startswith("C")
