"""The `aws` of a user's scripts: `aws s3 ls` and `aws s3 cp` with `-`, against the server that the tests have."""

from __future__ import annotations

import sys
from pathlib import Path

_PROGRAM = """#!{python} -IS
import os, re, sys, urllib.error, urllib.parse, urllib.request
def refuse(message):
    sys.exit("aws: error: " + message)
# moto looks at who signs, not at the signature.
HEADERS = {{
    "Authorization": "AWS4-HMAC-SHA256 Credential=A/1/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0",
    "Content-Type": "binary/octet-stream",
}}
def call(path, data=None):
    method = "GET" if data is None else "PUT"
    url = os.environ["AWS_ENDPOINT_URL"] + "/" + path
    request = urllib.request.Request(url, data, HEADERS, method=method)
    try:
        return urllib.request.urlopen(request).read()
    except urllib.error.HTTPError as error:
        sys.exit("fatal error: An error occurred (%d)" % error.code)
def place(url):
    if not url.startswith("s3://"):
        refuse("Invalid argument type: " + url)
    bucket, _, key = url[5:].partition("/")
    return bucket, key
if sys.argv[1:2] != ["s3"] or len(sys.argv) < 4:
    refuse("the following arguments are required: paths")
verb, paths = sys.argv[2], sys.argv[3:]
if verb == "ls" and len(paths) == 1:
    bucket, prefix = place(paths[0])
    query = urllib.parse.urlencode({{"list-type": 2, "delimiter": "/", "prefix": prefix}})
    page = call(bucket + "?" + query).decode()
    for folder in re.findall("<CommonPrefixes><Prefix>([^<]*)</Prefix>", re.sub(r">\\s+<", "><", page)):
        print("%30s %s" % ("PRE", folder[len(prefix):]))
    for part in re.findall("<Contents>(.*?)</Contents>", page, re.S):
        key, time, size = (re.search("<%s>([^<]*)<" % name, part)[1] for name in ("Key", "LastModified", "Size"))
        print("%s %10s %s" % (time[:19].replace("T", " "), size, key[len(prefix):]))
elif verb == "cp" and len(paths) == 2 and paths.count("-") == 1:
    bucket, key = place(paths[1] if paths[0] == "-" else paths[0])
    where = bucket + "/" + urllib.parse.quote(key)
    if paths[0] == "-":
        call(where, sys.stdin.buffer.read())
    else:
        sys.stdout.buffer.write(call(where))
else:
    refuse("Unknown options: " + " ".join(sys.argv[2:]))
"""


def write_aws(folder: Path) -> Path:
    """Write the program `aws` into a folder, which is returned, for PATH."""
    folder.mkdir(exist_ok=True)
    path = folder / "aws"
    path.write_text(_PROGRAM.format(python=sys.executable))
    path.chmod(0o755)
    return folder
