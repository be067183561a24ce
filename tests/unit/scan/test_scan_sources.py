"""The logs that `trainwarden scan` reads, and how much of them it keeps."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cases import cases
from tests.unit.scan.conftest import LATER, OOM, STEPS, Scanned
from trainwarden.scan.reading import FIRST, LAST, read_log
from trainwarden.scan.source import open_source
from trainwarden.scan.verdicts import of_one
from trainwarden.signals.pack import load_pack
from trainwarden.signals.scanner import Scanner

Scan = Callable[..., Scanned]
Write = Callable[..., Path]
COMMAND = [sys.executable, "-m", "trainwarden", "scan"]


@cases("compress", [gzip.compress, bz2.compress, lzma.compress], ids=["gzip", "bzip2", "xz"])
def test_compressed_logs_are_read_whatever_their_names_are(
    scan: Scan, log: Write, compress: Callable[[bytes], bytes]
) -> None:
    (one,) = scan("--format", "json", log(compress((STEPS + OOM).encode()), "train.1")).objects
    assert (one["error_type"], one["evidence"][0]["line"]) == ("oom", 41)


def test_a_compressed_log_that_is_cut_off_shows_what_it_holds_and_that_it_is_cut_off(scan: Scan, log: Write) -> None:
    whole = gzip.compress((OOM + "".join(map(str, range(100_000)))).encode())
    done = scan("--format", "json", log(whole[:-1000], "failed"), log(gzip.compress(b"fine\n")[:-9], "fine"))
    assert done.status == 2
    assert [one["error_type"] for one in done.objects] == ["oom", None]
    assert done.err.count("cut off") == 2


@pytest.mark.process
def test_standard_input_is_read(log: Write) -> None:
    done = subprocess.run(
        [*COMMAND, "--format", "json", "-"], input=OOM.encode(), capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stdout.startswith(b'{"file": "-", "error_type": "oom"')


@pytest.mark.process
def test_a_reader_that_goes_away_is_no_error(log: Write) -> None:
    path = log(OOM)
    process = subprocess.Popen([*COMMAND, *[str(path)] * 3], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 141
    assert err == b""


def test_a_storm_is_kept_in_part_and_the_first_failure_still_wins(log: Write) -> None:
    storm = "NCCL WARN NET/IB : Got completion with error 12\n" * 20_000
    with open_source(str(log(OOM + storm + "srun: error: n1: task 0: Exited with exit code 1\n"))) as source:
        found = read_log("storm", source, Scanner(load_pack().signals), with_context=True)
    assert max(found.counts.values()) == 20_000
    assert len(found.matches) <= (FIRST + LAST) * len(found.counts)
    finding = of_one(found)
    assert finding.error_type == "oom"
    assert finding.others[-1].line == 20_002


def test_a_failure_that_is_followed_by_steps_is_distinguished_from_one_at_the_end_in_a_long_log_too(
    scan: Scan, log: Write
) -> None:
    noise = "2026-11-21 10:00:00 [INFO] data: shard 17 has been opened and read\n" * 40_000
    survived = scan("--format", "json", log(STEPS + noise + OOM + LATER))
    failed = scan("--format", "json", log(STEPS + noise + LATER + OOM + "".join(noise[:1000])))
    assert [survived.status, failed.status] == [0, 1]


def test_a_log_that_grows_faster_than_it_is_read_has_an_end(log: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = log("fine\n" * 1000)
    with open_source(str(path)) as source:
        path.write_bytes(path.read_bytes() + OOM.encode())
        content = io.BytesIO()
        while data := source.read(4096):
            content.write(data)
    assert content.getvalue() == b"fine\n" * 1000


@pytest.mark.process
def test_the_command_needs_the_exporters_packages_alone() -> None:
    """The remediator's packages and the frameworks are never loaded."""
    program = (
        "import sys; from trainwarden.cli import main; status = main(['scan', '-'])\n"
        "foreign = {'pydantic', 'requests', 'sqlalchemy', 'boto3', 'torch', 'numpy', 'prometheus_client'}\n"
        "sys.exit(3 if foreign & set(sys.modules) else status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=b"fine\n", capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
