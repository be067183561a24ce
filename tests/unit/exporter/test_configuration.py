"""The file of `--config.file`: flags by their own names, read by what reads flags, and what is wrong is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cases import cases
from trainwarden.errors import UsageError
from trainwarden_exporter.configuration.check import check
from trainwarden_exporter.configuration.settings import COMMAND_LINE_ONLY, read_flags, read_settings
from trainwarden_exporter.flags import build_parser


def file_in(tmp_path: Path) -> Path:
    return tmp_path / "exporter.yml"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return file_in(tmp_path)


def test_keys_are_the_flags_names_nested_or_dotted(file: Path) -> None:
    file.write_text(
        "collector.runs.interval: 5s\n"
        "collector:\n  runs:\n    scope: all\n    max: 7\n  logs: {first-read: 1MiB, path: ['/x/{run_id}.log']}\n"
        "  gpu-jobs: false\n  efa: {enabled: true, interval: 1m}\n  clock.enabled: no\n"
        "web: {listen-address: ['127.0.0.1:1', '[::1]:2']}\nexpect.gpus: 8\ncompat: {finetuning: true}\n"
    )
    found = read_settings(file)
    assert {name: value for name, value in found.items() if name != "collector.logs.path"} == {
        "collector.runs.interval": 5.0,
        "collector.runs.scope": "all",
        "collector.runs.max": 7,
        "collector.logs.first_read": 2**20,
        "collector.gpu_jobs": False,
        "collector.efa": True,
        "collector.efa.interval": 60.0,
        "collector.clock": False,
        "web.listen_address": [("127.0.0.1", 1), ("::1", 2)],
        "expect.gpus": 8,
        "compat.finetuning": True,
    }
    assert [template.text for template in found["collector.logs.path"]] == ["/x/{run_id}.log"]


def test_the_command_line_goes_before_the_file_and_the_file_before_the_defaults(file: Path) -> None:
    file.write_text(
        "collector: {runs: {max: 7, scope: all}, efa: true, nvidia: true, logs.root: [/a, /b]}\nlog.level: debug\n"
    )
    argv = [f"--config.file={file}", "--collector.runs.max=9", "--no-collector.efa", "--collector.logs.root=/c"]
    flags = read_flags(argv)
    assert (flags["collector.runs.max"], flags["collector.runs.scope"], flags["log.level"]) == (9, "all", "debug")
    assert (flags["collector.efa"], flags["collector.nvidia"], flags["collector.amd"]) == (False, True, None)
    assert flags["collector.logs.root"] == [Path("/c")]
    assert flags["collector.runs.interval"] == 2.0


def test_every_flag_but_those_of_one_start_is_a_key(file: Path) -> None:
    for action in build_parser().flags():
        if action.dest in COMMAND_LINE_ONLY:
            continue
        file.write_text(f"{action.option_strings[0][2:]}:\n")
        with pytest.raises(UsageError, match="nothing, expected"):
            read_settings(file)


@cases(
    ("text", "words"),
    [
        ("collector.runs.intervall: 5s", ["line 1", "collector.runs.intervall", "expected collector.runs.interval?"]),
        ("collector:\n  rums: true", ["line 2", "collector.rums", "no such key"]),
        ("a:\n  b: 1\nlog.level: info", ["line 2", "key a.b", "expected a flag's name"]),
        ("collectr: {}", ["line 1", "key collectr", "no such key"]),
        ("web:\ncollector:\n  rums:", ["line 3", "key collector.rums", "no such key"]),
        ("collector.runs.max:", ["line 1", "collector.runs.max", "nothing, expected"]),
        ("collector.runs.max: {}", ["line 1", "collector.runs.max", "no such key"]),
        ("collector.runs.interval: soon", ["line 1", "collector.runs.interval", "'soon'", "expected", "2s"]),
        ("log.level: loud", ["log.level", "'loud'", "choose from"]),
        ("collector.runs: maybe", ["collector.runs", "'maybe'", "true or false"]),
        ("collector.runs.max: [1, 2]", ["collector.runs.max", "a list", "expected"]),
        ("web.listen-address: ':1'", ["web.listen-address", "':1'", "a list"]),
        ("web.listen-address: [':1', {a: b}]", ["web.listen-address", "a mapping", "expected"]),
        ("web.listen-address: [':1', '1']", ["web.listen-address", "'1'", "host:port"]),
        ("log.level: info\nlog.level: debug", ["line 2", "log.level", "twice"]),
        ("log.level: info\nlog:\n  level: debug", ["line 3", "log.level", "'debug'", "line 1"]),
        ("collector.efa: true\ncollector:\n  efa:\n    enabled: false", ["line 4", "collector.efa.enabled", "line 1"]),
        ("collector.efa.interval.enabled: true", ["no such key"]),
        ("- a\n- b", ["a list", "a mapping"]),
        ("just text", ["a text", "a mapping"]),
        ("log: {level: [}", ["line 1", "expected YAML"]),
        ("log:\n\tlevel: info", ["line 2", "a tab, expected spaces"]),
        ("a: &x [*x]", ["expected"]),
        ("once: true", ["once", "no such key"]),
        ("config.file: x.yml", ["config.file", "no such key"]),
        ("no-collector.runs: true", ["no-collector.runs", "expected collector.runs?"]),
        ("\x00", ["expected YAML"]),
        ("a: " + "[" * 100 + "]" * 100, ["expected"]),
    ],
    file=file_in,
)
def test_what_is_wrong_is_named_in_one_line(file: Path, text: str, words: list[str]) -> None:
    file.write_text(text)
    with pytest.raises(UsageError) as raised:
        read_settings(file)
    line = str(raised.value)
    assert "\n" not in line
    assert [word for word in [str(file), *words] if word not in line] == [], line


def test_a_file_that_is_not_there_or_too_large_is_named(file: Path) -> None:
    with pytest.raises(UsageError, match=r"exporter\.yml: No such file.*expected"):
        read_settings(file)
    file.write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(UsageError, match="more than 1048576 bytes"):
        read_settings(file)


def test_a_pipe_in_place_of_the_file_is_not_waited_for(file: Path) -> None:
    """SIGHUP reads the file where SIGTERM is waited for: a read that hangs would make an exporter that never ends."""
    os.mkfifo(file)
    with pytest.raises(UsageError, match="is no plain file, expected a file"):
        read_settings(file)


def test_aliases_of_aliases_are_not_multiplied_out(file: Path) -> None:
    lines = ["a: &a {x: y, z: y}"]
    lines += [f"{new}: &{new} {{{', '.join(f'k{n}: *{old}' for n in range(60))}}}" for old, new in ("ab", "bc", "cd")]
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(UsageError, match="one value too many, expected at most 10000"):
        read_settings(file)


@cases("text", ['collector.runs.path: "/a\\0b"', '"a\\0b": x', 'path.sysfs: "/\\ud800"'], file=file_in)
def test_a_text_that_can_name_no_file_is_no_value(file: Path, text: str) -> None:
    file.write_text(text + "\n")
    with pytest.raises(UsageError, match=r"line 1: a text with .*, expected plain text"):
        read_settings(file)


def test_an_empty_file_has_no_verdict(file: Path) -> None:
    file.write_text("# nothing yet\n")
    assert read_settings(file) == {}
    # As where everything in a section was made a comment.
    file.write_text("web:\ncollector: {runs: {}, logs: {}}\n")
    assert read_settings(file) == {}


def test_check_config_shows_what_would_run(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    web = tmp_path / "web.yml"
    web.write_text("http_server_config: {http2: true}\n")
    runs = f"runs: {{enabled: true, path: {tmp_path}}}"
    file.write_text(f"collector: {{disable-defaults: true, {runs}}}\nweb.config.file: {web}\n")
    check([str(file)])
    assert capsys.readouterr() == (f"{file}: right; collectors that run here: runs\n{web}: right\n", "")


def test_check_config_shows_what_is_off_and_what_is_seldom_meant(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    file.write_text(f"collector.runs.path: {tmp_path}/open\n")
    check([str(file)])
    assert "/open: any user may replace and remove the records of others" in capsys.readouterr().err
    paths = ", ".join(f"{name}: {tmp_path}/empty" for name in ("sysfs", "procfs", "rootfs"))
    file.write_text(f"path: {{{paths}}}\ncollector: {{runs.path: $HOME/runs, logs.root: [~/logs]}}\n")
    check([str(file)])
    out, errors = capsys.readouterr()
    assert "\noff here: nvidia (needs an NVIDIA GPU" in out
    assert errors.splitlines() == [
        f"{file}: warning: --collector.runs.path $HOME/runs does not exist yet",
        f"{file}: warning: --collector.logs.root ~/logs is taken letter by letter, without variables and ~",
        f"{file}: warning: --collector.runs.path $HOME/runs is taken letter by letter, without variables and ~",
    ]


@cases(
    ("text", "web", "word"),
    [
        ("path.sysfs: /nonexistent", "", "--path.sysfs"),
        ("collector.runs.path: /dev/null", "", "--collector.runs.path /dev/null: expected a folder"),
        ("collector.disable-defaults: true", "", "exporter.yml: key collector: no collector is left"),
        ("{collector: {disable-defaults: true, clock: true}, compat.finetuning: true}", "", "compat.finetuning"),
        ("collector.logs.signals: /nonexistent.yaml", "", "--collector.logs.signals /nonexistent.yaml: .*no such file"),
        ("collector.logs.signals: ~nobody-of-this-name/a", "", "no such file"),
        ("{}", "tls_server_config: {cert_file: a, key_file: b}", "expected a certificate"),
    ],
    file=file_in,
)
def test_check_config_finds_what_a_start_would(file: Path, tmp_path: Path, text: str, web: str, word: str) -> None:
    file.write_text(text)
    (tmp_path / "web.yml").write_text(web)
    with pytest.raises(UsageError, match=word):
        check([str(file), f"--web.config.file={tmp_path / 'web.yml'}"])


def test_check_config_makes_and_locks_no_folder_of_state(file: Path, tmp_path: Path) -> None:
    # Made by root who checks, it would not be writable for the service.
    file.write_text(f"path.state: {tmp_path}/state\n")
    check([str(file)])
    assert not (tmp_path / "state").exists()
