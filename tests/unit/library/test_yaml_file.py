"""The reader of users' YAML files: what is wrong is named by file, line and key, and no file costs more than it may."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import pytest

from tests.cases import cases
from trainwarden.errors import UsageError
from trainwarden.yaml_file import MAX_BYTES, read_yaml


def file_in(tmp_path: Path) -> Path:
    return tmp_path / "some.yml"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return file_in(tmp_path)


def test_values_have_their_line_and_whole_key(file: Path) -> None:
    file.write_text("a:\n  b: 1\n  c:\n  - x\n  - {d: y}\n")
    document = read_yaml(file)
    deepest = document.at(["a", "c", 1, "d"])
    assert (deepest.key, deepest.line, deepest.text, deepest.place) == ("a.c[1].d", 5, "y", f"{file}:5")
    assert document.at(["a", "c"]).line == 3
    assert document.at(["a", "missing", "more"]).key == "a"
    assert document.at([7]).key == ""


def test_data_is_what_yaml_makes_of_it_with_texts_for_keys(file: Path) -> None:
    file.write_text("a: 1\nb: [1.5, true, ~, '2', x, =, 2024-01-02]\non: {1: no}\nc:\n")
    assert read_yaml(file).data() == {
        "a": 1,
        "b": [1.5, True, None, "2", "x", "=", dt.date(2024, 1, 2)],
        "on": {"1": False},
        "c": None,
    }


def test_a_text_stays_as_it_is_written(file: Path) -> None:
    file.write_text("a: 0x10\nb: 2024-01-02\nc: no\n")
    assert [entry.scalar() for entry in read_yaml(file).mapping().values()] == ["0x10", "2024-01-02", "no"]


def test_aliases_and_merges_are_expanded_and_a_mappings_own_key_counts(file: Path) -> None:
    file.write_text("a: &a {x: 1, y: 2}\nb: &b {x: 3, z: 4}\nc:\n  <<: [*a, *b]\n  y: 5\nd: *a\n")
    data = read_yaml(file).data()
    assert data["c"] == {"x": 1, "y": 5, "z": 4}
    assert data["d"] == {"x": 1, "y": 2}


@cases(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: key a: given twice, expected once"),
        ("a:\n- {b: 1, b: 1}\n", "line 2: key a[0].b: given twice"),
        ("a: !!python/object/apply:os.system [x]\n", "line 1: key a: a tag that is not known"),
        ("a: !mine x\n", "line 1: key a: a tag that is not known"),
        ("a: !!set {x, y}\n", "line 1: key a: a tag that is not known"),
        ("? [a, b]\n: c\n", "line 1: a key of several values, expected a name"),
        ("a:\n  <<: 7\n", "line 2: key a: '7', expected a mapping, or a list of them, to merge"),
        ("a: &a [*a]\n", "nested too deep, expected at most 20 levels"),
        ("a: " + "[" * 100_000, "expected"),
        ("- a\n", "line 1: a list, expected a mapping of keys"),
        ('a: "\\0"\n', "line 1: a text with '\\x00', expected plain text"),
        ("a: *b\n", "expected YAML"),
        ("a:\n\tb\n", "line 2: a tab, expected spaces"),
        ("\x00", "expected YAML"),
    ],
    file=file_in,
)
@pytest.mark.slow
def test_what_is_no_such_file_is_refused_with_line_and_key(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError) as raised:
        read_yaml(file)
    assert str(raised.value).startswith(f"{file}: ")
    assert said in str(raised.value)


@cases("text", ["2024-13-45", "!!int x", "!!float y", "!!binary é"], file=file_in)
def test_a_scalar_that_is_not_what_its_form_promises_is_named(file: Path, text: str) -> None:
    file.write_text(f"a:\n  b: {text}\n")
    with pytest.raises(UsageError, match=r"line 2: key a\.b: .*, expected a valid (timestamp|int|float|binary)"):
        read_yaml(file).data()


@pytest.mark.parametrize("form", ["k{n}: *{old}", "<<: [{many}]"], ids=["aliases", "merges"])
def test_aliases_of_aliases_are_not_multiplied_out(file: Path, form: str) -> None:
    lines = ["a: &a {x: y, z: y}"]
    for old, new in ("ab", "bc", "cd", "de"):
        many = ", ".join([f"*{old}"] * 60)
        entries = ", ".join(form.format(n=n, old=old, many=many) for n in range(60 if "k{n}" in form else 1))
        lines.append(f"{new}: &{new} {{{entries}}}")
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(UsageError, match="one value too many, expected at most 10000"):
        read_yaml(file)


def test_a_file_that_is_missing_too_large_or_a_pipe_is_named(file: Path) -> None:
    with pytest.raises(UsageError, match=r"some\.yml: No such file.*expected"):
        read_yaml(file)
    file.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(UsageError, match="more than 1048576 bytes"):
        read_yaml(file)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(UsageError, match="is no plain file, expected a file"):
        read_yaml(file)


def test_a_file_of_comments_is_empty(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf# with a byte order mark\n")
    assert read_yaml(file).mapping() == {}
    assert read_yaml(file).data() is None


def test_an_unknown_key_is_named_with_a_near_one_or_all(file: Path) -> None:
    file.write_text("\ncolour: red\n")
    document = read_yaml(file)
    with pytest.raises(UsageError, match=r"line 2: key colour: there is no such key, expected color\?"):
        document.mapping(["color", "size"])
    with pytest.raises(UsageError, match="expected one of length, size"):
        document.mapping(["size", "length"])
    with pytest.raises(UsageError, match="expected a known key"):
        document.mapping([f"{n}" for n in range(20)])
