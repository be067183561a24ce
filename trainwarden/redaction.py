"""Text from logs and records made fit for a label: no secrets, no control characters, bounded in bytes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache

# Of a text so much is looked at: more than any label holds, and each kilobyte takes milliseconds.
MAX_INPUT = 1024
CACHED_INPUT = 256
REDACTED = "[redacted]"

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def _patterns(*pairs: tuple[str, str]) -> Callable[[], tuple[re.Pattern[str], ...]]:
    """Return what returns patterns of what is kept, followed by a secret.

    They are compiled when they are first needed: all together take 30 ms, and many processes need none, or few.
    """
    return cache(lambda: tuple(re.compile(f"(?P<kept>{kept}){secret}") for kept, secret in pairs))


# Tokens that show by their first characters whose they are, with what follows at least.
_PREFIXED = (
    r"(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z0-9]{12,}",  # AWS
    r"(?:LTAI|AKID)[A-Za-z0-9]{12,}",  # Alibaba, Tencent
    r"AIza[\w-]{30,}",  # Google
    r"GOOG1[A-Z0-9]{20,}",
    r"(?:4/0A|1//0)[\w-]{8,}",
    r"AQ\.[\w-]{30,}",
    r"ya29\.[\w.-]{8,}",
    r"GOCSPX-[\w-]{10,}",
    r"(?:hf_|api_org_)[A-Za-z0-9]{12,}",  # Hugging Face
    r"(?:sk|pk|rk)(?:-(?=[\w-]*\d)[\w-]{6,}|_(?=(?:\w*\d){2})\w{16,})",  # OpenAI, Anthropic, Stripe, Langfuse
    r"[spr]k_(?:live|test)_\w{16,}",
    r"whsec_\w{6,}",
    r"pa-(?=[\w-]*\d)[\w-]{40,}",  # Voyage
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
    r"(?:lin_api|figd|shp(?:at|ca|pa|ss)|pscale_(?:tkn|pw|oauth)|dp\.(?:pt|st(?:\.[\w-]{1,64})?|ct|sa|scim|audit)|PMAK|sq0[a-z]{3})[-_.][\w-]{6,}",
    r"AGE-SECRET-KEY-1\w+",
    r"eyJ[\w-]{8,}(?:\.[\w-]{4,}(?:\.[\w-]*)?|[\w+/=-]{24,})",  # JSON in base64: JWT, Neptune, Grafana
    r"\w{3}8Q~[\w.~-]{20,}",  # Azure AD
    r"[MNO][A-Za-z\d_-]{23,}\.[\w-]{6}\.[\w-]{27,}",  # Discord
    r"\d{8,10}:AA[\w-]{30,}",  # Telegram
    r"wandb_v\d_\w{16,}",
    # Pinecone, LangSmith, Anyscale, Notion, Supabase, PostHog, Vercel, Render
    r"(?:pcsk|lsv2_(?:pt|sk)|e?secret|sb_secret|aph0|ph[cx]|vc[kp]|rnd)_(?=[A-Za-z_-]{0,64}\d)[\w.-]{8,}",
    r"(?:fm[12]|fo1)_[\w+/=,-]{24,}",  # Fly
    r"(?:tskey|xkeysib)-[\w-]{10,}",  # Tailscale, Brevo
    r"a[ks]-(?=\w*[a-z]\w*[A-Z])[A-Za-z0-9]{20,}",  # Modal
    r"sq[apu]_[0-9a-f]{32,}",  # SonarQube
    r"CCI(?:PAT|PRJ)_\w{12,}",
    r"bkua_[0-9a-f]{32,}",
    r"EAAA[A-Za-z0-9]\w{24,}",  # Square, Meta
    r"[0-9a-f]{32}-us\d{1,2}\b",  # Mailchimp
    r"(?:AKCp\d|cmVmdGtu)[A-Za-z0-9]{12,}",  # JFrog
    r"pat[A-Za-z0-9]{14}\.[0-9a-f]{16,}",  # Airtable
    r"s\.(?=[A-Za-z]*\d)[A-Za-z0-9]{24}\b",  # Vault before 1.10
    r"gAAAAA[\w-]{12,}={0,2}",  # Fernet
    r"MUNGE:[\w+/=]{8,}",
    r"\$(?:2[abxy]|[156y]|7|apr1|argon2\w{1,2})\$[\w./$=,+-]{12,}",  # crypt(3)
    r"(?:tvly|luma|ms)-(?:(?:dev|prod)-)?(?=[\w-]*\d)[\w-]{24,}",  # Tavily, Luma, ModelScope
    r"fc-[0-9a-f]{32}",  # Firecrawl
    r"(?:e2b|jina|unkey|pb|tk|hca?[ix]k|duffel_(?:test|live))_(?=(?:\w*\d){2})\w{20,}",
    r"dt0[cs]\d\d\.[A-Z0-9]{8,}\.[A-Z0-9]{32,}",  # Dynatrace
    r"sl\.(?=[\w-]*\d)[\w-]{60,}",  # Dropbox
    r"access_token\$\w{4,16}\$[a-z0-9]{8,}\$[0-9a-f]{16,}",  # PayPal
    r"cio(?=\w*\d)(?=\w*[A-Z])[A-Za-z0-9]{32}\b",  # crates.io
    r"[0-9a-f]{32}\.(?=\w*\d)(?=\w*[A-Z])[A-Za-z0-9]{16}\b",  # Zhipu
    r"\d/\d{16}:[0-9a-f]{32}",  # Asana
    r"SCT\d{4,10}T[A-Za-z0-9]{20,}",  # ServerChan
    r"syt_\w{4,}_[A-Za-z]{20}_\w{6}",  # Matrix
    # What is base64 by its end, with letters and digits at random.
    r"(?=[A-Za-z+/]*\d)(?=[a-z0-9+/]*[A-Z])[A-Za-z0-9+/]{31,}={1,2}(?![\w=])",
)
# Names of secrets. After the first kind of name any value is one; after the second not a number, a flag or a `<pad>`.
_PHRASE = (
    r"(?i:pass(?:wor[dt]|wd|[ _-]?phrase|code)"
    r"|kennwort|contraseña|mot de passe|senha|密码|密碼|パスワード|пароль)"
)
_SURE = (
    rf"(?:{_PHRASE}|(?i:(?<!by)(?<!com)pass(?![=:]\s*\d{{1,3}}\b)|pwd(?![=:]\s*[/~.])|secret(?:[_-]?id)?|saml(?:response|request|assertion)|creds|psk|credentials?|(?:php|j)?sessionid"
    r"|(?:api|app|access|private|account|secret|shared[_-]?access|signing|encryption|auth|master|application|routing"
    r"|integration|subscription|storage|licen[cs]e)[ _-]?key(?:[ _-]?(?:id|base|data))?))"
)
_LIKELY = (
    r"(?:[A-Z0-9]_KEY|(?<![A-Za-z0-9])PAT|(?i:(?<!Expired|Invalid)token|cookie|sig(?:nature)?|auth|hmac|(?<![a-z])(?:bind)?pw"
    r"|x-(?:amz|goog)-(?:signature|credential|security-token)|x-honeycomb-team|(?<=[?&])key))"
)
# In JSON within JSON quotes are escaped; in an address within an address, `=` is %3D, and a quote is %22.
_QUOTE = r"(?:\\*[\"'])"
_EQUALS = rf"(?:{_QUOTE}|%2[27])?\s*(?::?=|[:\uff1a]|=>|%3[aAdD])\s*(?:[|>][+-]?\s+(?=\S))?"
_VALUE = r"(?:(?:\w{1,32}\((?=[\"']))?[bBrRuU]{0,2}\\*(?:\"[^\"]*\"?|'[^']*'?)|[^\s,;&\"')\]}]+)"
_HARMLESS = (
    r"(?!\\*[\"']?(?:\d{1,9}|true|false|o(?:n|ff)|(?:en|dis)abled|none|null|sig[a-z]{2,6}|<[^>]*>?|\[\w+\]|redacted|\*+)"
    r"(?:[\s,;&\"')\]}.\\]|$))"
)
# A text of both letters and digits: no word of a sentence.
_MIXED = r"(?=[^\s\"',;]*\d)(?=[^\s\"',;]*[A-Za-z])"

# Each keeps what stands before the secret, so that a reader still sees what kind it was.
_BY_FORM = _patterns(
    ("", r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----.*"),
    # A password may hold what should have been escaped; the number of a port is none.
    (
        r"[A-Za-z][A-Za-z0-9+.-]{0,30}://",
        r"(?:[^\s/@]{1,512}@(?:[^\s/@\"']+@)*|[^\s/@:]{0,64}:(?!\d{1,5}\b)[^\s@\"'<>]{1,128}@)",
    ),
    (r"(?i:%3a%2f%2f)", r"[^\s%/@]*(?i:%3a)[^\s&/]+?%40"),
    (r"(?i:\b(?:bearer|basic)\s+)", r"[A-Za-z0-9._~+/=-]{16,}"),
    ("", rf"(?<![A-Za-z0-9])(?:{'|'.join(_PREFIXED)})"),
    (r"(?i:hooks\.slack(?:-gov)?\.com/)(?:services|workflows|triggers)/", r"\S+"),
    (
        (
            r"(?i:discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/webhookb2/|api\.telegram\.org/bot"
            r"|\bapi\.day\.app/|/open-apis/bot/v2/hook/|datadoghq\.\w{2,3}/(?:api/)?v\d/input/|hooks\.zapier\.com/hooks/catch/|hc-ping\.com/|/with/key/)"
        ),
        r"\S+",
    ),
    (r"/hooks/", r"[a-z0-9]{26}\b"),  # Mattermost
    (r"(?i:\bconda[\w.-]*/t/)", r"[^\s/]+"),
    # A line of ~/.pgpass: host, port, database, user. No address of hexadecimal digits, no place in a log's format.
    (
        (
            r"(?<![\w.*/:-])(?!(?:[0-9A-Fa-f]{0,4}:){4})(?:[\w.*/-]{1,253}):(?:\d{4,5}|\*):(?:[\w.*-]{1,63}):"
            r"(?!(?i:debug|info|warn|warning|error|critical|fatal):)[A-Za-z_*][\w.$*-]{0,62}:"
        ),
        r"[^\s\"']+",
    ),
    (r"(?i:\bauth\s+(?:login|plain)\s+)", r"[A-Za-z0-9+/]{8,}={0,2}"),
    (r"(?i:\bpushover\w*[\"']?[\s:=]{1,4}(?:\w{1,8}[\"']?[\s:=]{1,4})?[\"']?)", r"[A-Za-z0-9]{30}\b"),
    # What a script types, of `expect` or Python's pexpect: with the key Enter, or at a prompt.
    (r"(?i:\bsend(?:\s+-[\w-]+)*\s+)", r"(?:\\*\"[^\"]*\\+[rn]\"?|'[^']*\\+[rn]'?|\{[^}]*\\+[rn]\}?)"),
    (r"(?i:\bsendline\(\s*)", _VALUE),
    (r"(?i:(?:assword|passphrase)\b.{0,80}?\bsend(?:\s+-[\w-]+)*\s+)", rf"(?={_QUOTE}){_VALUE}"),
    # Without a scheme.
    (r"(?i:proxy[\"']?\s*[=:]\s*[\"']?)[^\s:@/\"']{1,64}:", r"[^\s@/\"']{1,128}@"),
    (r"(?i:\bwandb(?:\.exe)?\s+login\s+(?:--\S+\s+)*)", r"[^\s-]\S{15,}"),
    (r"\b[A-Za-z]{0,4}\d+\s+LOGIN\s+\S+\s+", r"\S+"),  # IMAP
    (r"\bAUTH\s+", r"(?=\S*\d)(?=\S*[a-z])[A-Za-z0-9+/=_-]{12,}"),  # Redis
    (r"(?i:\b(?:masterauth|requirepass)\s+|\bstats\s+auth\s+[^\s:]{1,64}:)", r"\S+"),
    (r"(?i:\bidentified\s+(?:with\s+\S+\s+)?by\s+(?:password\s+)?)", rf"(?={_QUOTE}){_VALUE}"),
    (rf"\.login\(\s*{_QUOTE}[^\"'\s]{{1,64}}{_QUOTE}\s*,\s*", _VALUE),
    # Some words after a login or a service whose keys are hexadecimal; not what a word before it calls a hash.
    (
        (
            r"(?i:\b(?:keys?|log(?:ged |in |-)?in|credentials?|wandb|w&b|weights & biases|kaggle|datadog"
            r"|comet(?:[_-]?ml)?)\b"
            r"(?:(?!commit|sha|hash|rev|digest|checksum|md5|etag|trace|span|branch|version|uuid|blob|image|\bids?\b)[^,;|/@])"
            r"{0,60}?)"
        ),
        r"(?<![\w./@+-])(?=[a-f]*\d)(?=\d*[a-f])(?:[0-9a-f]{32}|[0-9a-f]{40})(?![\w./@-])",
    ),
)
_LOGIN_OPTION = r"(?i:\b(?:curl|wget|etcdctl)\b[^|;]{0,200}\s(?:-[a-z]{0,6}u|--(?:proxy-)?user)[\s=]*)"
# Arguments of programs, as a shell prints them with `set -x`.
_BY_COMMAND = _patterns(
    (
        r"(?i:\b(?:echo|printf)\s+(?:-\w+\s+)?)",
        (
            r"[^|;]{1,200}(?=\|\s*(?:sudo\s+-S|(?:ch|smb)?passwd\b|kinit\b|cryptsetup\b"
            r"|[^|;]{0,80}--?(?:password-stdin|with-token|passphrase-fd)))"
        ),
    ),
    (
        r"(?i:\b(?:sudo\b[^|;]{0,200}?\s-S|(?:ch|smb)?passwd|kinit|[\w-]*-stdin|--with-token)\b[^|;<]{0,200}<<<\s*)",
        r"(?:\"[^\"]*\"?|'[^']*'?|\S+)",
    ),
    (r"(?i:\bskopeo\b[^|;]{0,200}?\s--(?:src-|dest-)?creds[\s=][\"']?[^\s:\"']{1,64}:)", r"[^\s\"']+"),
    (rf"{_LOGIN_OPTION}[\"'][^\s:\"']{{1,64}}:", r"[^\"']+"),
    (rf"{_LOGIN_OPTION}[^\s:\"']{{1,64}}:", r"[^\s\"']+"),
    (r"\bcurl\b[^|;]{0,200}\s--oauth2-bearer[\s=]+", r"\S+"),
    (r"\bhttps?\s(?:[^|;]{0,200}?\s)??(?:-a|--auth)[\s=]+[\"']?[^\s:\"']{1,64}:", r"[^\s\"']+"),
    (
        (
            r"(?i:\b(?:docker|podman|crane|oras|nerdctl|sshpass|mysql|mysqldump|ldapsearch|oc|helm|mongo(?:sh|dump|restore|export|import)?"
            r"|psexec|sqlcmd|bcp|cqlsh|az\s+login)\b[^|;]{0,200}?\s-[pw]\s?)"
        ),
        r"(?![\d:]+\b)[^\s-]\S*",
    ),
    (r"(?i:\bredis-cli\b[^|;]{0,200}?\s-a\s+|\bipmitool\b[^|;]{0,200}?\s-p\s+)", r"\S+"),
    (r"(?:\bopenssl\b[^|;]{0,200}?\s-k\s+|\bsnmp[a-z]{2,12}\b[^|;]{0,200}?\s-(?:c\s*|[AX]\s+))", r"\S+"),
    (r"(?:\b7z[arz]?\b[^|;]{0,200}?\s-p|\b(?:un)?zip\b[^|;]{0,200}?\s-P\s*)", r"\S+"),
    (r"\bopenssl\b[^|;]{0,200}?\spass:", r"\S+"),
    (r"\bssh-keygen\b[^|;]{0,200}?\s-[NP]\s*", r"(?!(?:\"\"|'')(?:\s|$))\S+"),
    (r"\bhtpasswd\s+(?:-\w+\s+(?:\d+\s+)?)*?-[A-Za-z]*b[A-Za-z]*\s+", r"[^|;&]+"),
    (r"(?i:\bnet\s+user\s+\S+\s+)", r"(?:[^\s/*]\S*(?=\s+/[a-z])|(?=\S*\d)[^\s/*]\S{5,})"),
    (r"(?i:\bnet\s+use\s+(?:\S+\s+)?\\\\\S+\s+)", r"[^\s/*]\S*"),
    (r"(?i:\bConvertTo-SecureString\s+(?:-String\s+)?)", r"(?![-$])(?:\"[^\"]*\"?|'[^']*'?|\S+)"),
    (r"(?i:\b(?:smbclient|rpcclient|smbget)\b[^|;]{0,200}?\s(?:-U|--user)[\s=]*[^\s%]{1,64}%)", r"\S+"),
    (r"(?i:\b(?:sqlplus|rman|expdp|impdp|sqlldr)\s+(?:[^|;]{0,200}?\s)??[\w$#]{1,64}/)", r"[^\s/@\"']+(?=@|\s|$)"),
    (r"(?i:\bcomposer\s+config\b[^|;]{0,80}\shttp-basic\.\S+\s+\S+\s+)", r"\S+"),
    (r"(?i:\b(?:lftp|open)\s+(?:\S+\s+)?-u\s*[^\s,]{1,64},)", r"\S+"),
    (r"\bmc\s+(?:alias\s+set|config\s+host\s+add)\s+\S+\s+\S+\s+", r"\S+\s+\S+"),
)
# One of these is in every text that has such a command.
_COMMANDS = re.compile(
    r"(?i:echo|printf|<<<|curl|wget|etcdctl|docker|podman|crane|oras|nerdctl|skopeo|sshpass|mysql|ldapsearch|\boc\b|helm|mongo|psexec|sqlcmd|bcp|cqlsh|az\s+login|\bhttps?\s"
    r"|redis-cli|ipmitool|openssl|snmp|7z|zip|ssh-keygen|htpasswd|net\s+use|securestring|smb|rpcclient|sqlplus|rman"
    r"|expdp|impdp|sqlldr|composer|lftp|open\s|\bmc\s)"
)
_BY_NAME = _patterns(
    (rf"(?i:\bauthorization{_QUOTE}?\s*[=:,]\s*{_QUOTE}?digest\s+)", r"\S.*"),
    (
        # A shell escapes the spaces.
        rf"(?i:\bauthorization{_QUOTE}?\s*[=:,][\s\\]*\[?{_QUOTE}?)",
        rf"(?i:{_HARMLESS})(?i:(?:bearer|basic|token|splunk|api-?key|key|digest|negotiate)[\s\\]+)?[^\s\"'\\]+",
    ),
    (rf"(?i:\b(?:set-)?cookie{_QUOTE}?:\s*)", r"\S.*"),
    (r"(?i:pass[ _-]?phrase\s*:\s+)", r"(?![\\\"']|\[redacted\]).+"),
    (rf"{_PHRASE}\s+", rf"(?i:{_HARMLESS})\\*(?:\"[^\"]+\"?|'[^']+'?)"),
    # Several words to the end of the line, as YAML has them.
    (rf"{_PHRASE}{_QUOTE}?\s*:\s+", r"[^\W_][\w-]*(?:\s+[\w-]+){1,11}[.!]?$"),
    (
        rf"{_SURE}(?:{_EQUALS}|\s+provided:\s+|\s+(?:is|was)\s*[=:]?\s*(?=\S*\d|{_QUOTE}[^\s\"']+{_QUOTE}))",
        rf"(?!\[redacted\]|(?i:none|null)\b){_VALUE}",
    ),
    # `auth: munge plugin not found` is a sentence.
    (rf"{_LIKELY}{_EQUALS}", rf"(?!(?<=: )(?:[A-Za-z]{{1,12}}[ (][A-Za-z]|\())(?i:{_HARMLESS}){_VALUE}"),
    # Elements and attributes of XML; the pairs by which Kubernetes and Docker write an environment.
    (rf"<(?:\w+:)?[\w.-]*(?:{_SURE}|(?i:token))>", r"[^<]+(?=</)"),
    (
        (
            rf"(?i:\b(?:name|key)){_QUOTE}?\s*[=:]\s*{_QUOTE}?[\w.-]{{0,64}}?(?:{_SURE}|{_LIKELY}){_QUOTE}?"
            rf"[\s,]{{1,4}}{_QUOTE}?(?i:value){_QUOTE}?\s*[=:]\s*"
        ),
        rf"(?i:{_HARMLESS}){_VALUE}",
    ),
    (
        rf"(?i:\bvalue){_QUOTE}?\s*[=:]\s*",
        rf"(?={_QUOTE}){_VALUE}(?=[\s,]{{1,4}}{_QUOTE}?(?i:name|key){_QUOTE}?\s*[=:]\s*{_QUOTE}[\w./-]{{0,64}}?{_SURE}{_QUOTE})",
    ),
    # Settings of Hadoop and Spark; before a colon it would be the name of a file.
    (r"(?:access|account|private|secret)\.key(?:\.[\w.-]{1,80})?=", r"[^\s,;&\"']+"),
    # Pairs of Python, and its lists of arguments.
    (rf"(?:{_SURE}|{_LIKELY}){_QUOTE}\s*,\s*(?=[bru]?\\*[\"'])", rf"(?=[bru]?\\*[\"'][^\s\"']*\d){_VALUE}"),
    (rf"{_PHRASE}\s+(?:->\s+|for\s[^:]{{1,64}}:\s+)", rf"{_MIXED}\S+"),
    (rf"{_PHRASE}\s+", rf"{_MIXED}[^\s\"',;]{{6,}}"),
    (rf"(?:{_SURE}|(?i:auth[_-]?token))\s+", rf"{_MIXED}[\w+/=-]{{12,}}"),
    (rf"{_SURE}\s+->\s+", rf"{_MIXED}\S{{8,}}"),
    (r"(?i:\b(?:api-?key|geniekey)\s+)", rf"{_MIXED}[\w.-]{{20,}}"),
    (r"(?i:\bkeys?[\"']?[\s:=]{1,8}[\"']?)", r"(?:[0-9a-f]{32}|[0-9a-f]{40})\b"),
    # `s3_key=…`; not the key of a cache, a sort or a dictionary.
    (
        rf"[a-z0-9](?<!cache)(?<!object)(?<!sort)(?<!dict)(?<!state)(?<!partition)(?<!shard)(?<!group)_key{_EQUALS}{_QUOTE}?",
        r"(?=[A-Za-z0-9]*\d)(?=[A-Za-z0-9]*[A-Za-z])[A-Za-z0-9]{20,}",
    ),
    (r"(?i:(?<![A-Za-z])token\s+)", r"(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{20,}"),
    (r"(?i:\b(?:unseal|recovery)\s+key\s+\d+:\s*)", r"\S+"),
    (
        (
            r"(?i:(?<![\w-])--?[\w.]?[\w.-]{0,40}?(?<![A-Za-z])"
            r"(?:password|passwd|pass|passphrase|token|secret|(?:api|auth|access|account|secret|storage|private)[-_]?key))"
            rf"(?:{_QUOTE}\s*,\s*|[\s=]+)"
        ),
        rf"(?!-)(?i:{_HARMLESS}){_VALUE}",
    ),
    (r"(?i:\b(?:setenv|set\s+-\w{1,3})\s+\w*(?:key|token|secret|passw\w*|pwd|credentials?)\s+)", r"\S+"),
    (r"(?i:\blogin\s+\S+\s+password\s+)", r"\S+"),
    (r"(?i:\bbindpw\s+)", r"\S+"),
)
# One of these is in every text that has such a name: most lines have none, and cost little.
_NAMES = re.compile(
    r"(?i:pass|pwd|pw\b|psk|secret|saml|cred|hmac|(?:\b|_)pat\b|key|token|cookie|sig|auth|x-|sessionid"
    r"|kennwort|contraseña|mot de passe|senha|密码|密碼|パスワード|пароль)"
)
# What has no name and no known beginning: letters and digits at random, unlike words, paths, hashes and symbols of C++.
# A line of a key in base64 holds slashes as well.
_WORD = re.compile(r"(?<![\w./+-])[\w+-]{24,}={0,2}(?![\w./])|(?<!\S)[A-Za-z0-9+][A-Za-z0-9+/]{39,}={0,2}(?!\S)")
_LONG_PART = re.compile(r"[A-Za-z0-9]{24,}|(?<!\S)[A-Za-z0-9+/]{40,}")


def redact(text: str) -> str:
    """Return the text with everything that looks like a secret replaced."""
    patterns = _BY_FORM()
    if _COMMANDS.search(text):
        patterns += _BY_COMMAND()
    if _NAMES.search(text):
        patterns += _BY_NAME()
    for pattern in patterns:
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


def name_text(text: str, limit: int = 200) -> str:
    """Return a name that things are joined by, such as a host's or a job's, as one line of at most `limit` bytes.

    Nothing in it is replaced: some machines and jobs are named as tokens begin, as `sk-gpu-01` is.
    """
    if text.isascii() and text.isprintable() and text == text.strip() and "  " not in text:
        return text[:limit]
    return truncate(plain(text), limit)


def plain(text: str) -> str:
    """Return the text without terminal escapes, control and format characters and lone surrogates, on one line."""
    if text.isprintable():  # as nearly all are; to look at each character takes much longer
        return " ".join(text.split())
    text = _ESCAPES.sub("", text)
    return " ".join("".join(char if _printable(char) else " " for char in text).split())


def truncate(text: str, limit: int) -> str:
    """Return at most `limit` bytes of the text's UTF-8, cut between characters."""
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def _printable(char: str) -> bool:
    return not unicodedata.category(char).startswith("C")
