"""Reading the ranks of a record, from the files of hosts and of single ranks, whoever wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from trainwarden.record.document import Unreadable
from trainwarden.record.rank import (
    MAX_RANKS_OF_HOST,
    HostBeats,
    HostFile,
    RankBeat,
    host_file,
    host_files,
    newest_beats,
    read_host,
    read_rank,
    read_ranks,
    remove_old_hosts,
)

_KEY = "slurm:7:0"


def _beat(rank: object, second: int, **values: object) -> dict[str, object]:
    time = f"2026-01-01T00:00:{second:02}Z"
    return {"rank": rank, "status": "running", "time": time, "attempt_key": _KEY, **values}


class Ranks:
    """The folder `ranks/` of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "ranks").mkdir()

    def host(self, name: str, *beats: dict[str, object]) -> Path:
        return self.write(f"{name}-0123abcd.json", json.dumps({"host": name, "ranks": beats}))

    def one(self, rank: int, second: int, **values: object) -> Path:
        return self.write(f"{rank}.json", json.dumps(_beat(rank, second, **values)))

    def write(self, name: str, text: str) -> Path:
        path = self.folder / "ranks" / name
        path.write_text(text)
        return path

    def read(self, **options: Any) -> list[tuple[int, int | None]]:
        found = read_ranks(self.folder, **options)
        return [(beat.rank, beat.step) for beat in found if isinstance(beat, RankBeat)]


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    return Ranks(tmp_path)


def test_of_the_files_of_a_rank_the_newest_counts(ranks: Ranks) -> None:
    ranks.host("a", _beat(0, 5, step=5), _beat(1, 5, step=5), _beat(2, 5, step=5))
    ranks.host("b", _beat(3, 5, step=5))
    ranks.one(1, 6, step=6)
    ranks.one(2, 4, step=4)
    ranks.one(4, 4, step=4)
    assert ranks.read() == [(0, 5), (1, 6), (2, 5), (3, 5), (4, 4)]
    assert ranks.read(ranks=range(1, 3)) == [(1, 6), (2, 5)]
    assert ranks.read(host="b") == [(1, 6), (2, 4), (3, 5), (4, 4)]


@cases(
    "change",
    [
        {"step": 7, "time": "2026-01-01T00:00:09.250000Z"},
        {"step": 7.0},
        {"step": -1},
        {"step": None},
        {"time": "2026-01-01T00:00:09Z"},
        {"time": "noon"},
        {"time": None},
        {"status": "failed"},
        {"pid": True},
        {"pid": "12"},
        {"rank": 1},
        {"rank": [0]},
        {"sections": {"load": 2.0}},
        {"sections": {"load": "long"}},
        {"gpu": 3},
        {"unheard": "of"},
        {"unheard": {"step": 5, "time": "2026-01-01T00:00:05.000000Z"}},
        {"step": None, "unheard": {"step": 5, "time": "2026-01-01T00:00:05.000000Z"}},
        {"sections": {"step": 1.5, "time": 2.0}},
        {"host": '"step": 6,"time": "2026-01-01T00:00:05.000000Z"'},
    ],
    ids=str,
    ranks=Ranks,
)
def test_a_file_of_a_host_that_is_read_again_reads_as_at_first(ranks: Ranks, change: dict[str, object]) -> None:
    """Where only steps and times differ nothing else is parsed: whatever else differs, nothing of before may stay."""
    hosts: dict[str, HostFile] = {}
    first: dict[str, object] = {"rank": 0, "step": 5, "status": "running", "time": "2026-01-01T00:00:05.000000Z"}
    first |= {"pid": 12, "sections": {"load": 1.5}}
    moved = {"step": 8, "time": "2026-01-01T00:00:08.000000Z"}
    for values in ({}, moved, change, change, moved, {**moved, **change}, {}):
        beat = {key: value for key, value in {**first, **values}.items() if value is not None}
        ranks.host("a", beat, {**beat, "rank": 3})
        found, fresh = read_ranks(ranks.folder, hosts=hosts), read_ranks(ranks.folder)
        assert found == fresh
        assert [vars(one) for one in found if isinstance(one, RankBeat)] == [
            vars(one) for one in fresh if isinstance(one, RankBeat)
        ]


def test_an_end_counts_of_two_beats_of_the_same_moment(ranks: Ranks) -> None:
    ranks.host("a", _beat(0, 5))
    ranks.one(0, 5, status="failed")
    beat = read_rank(ranks.folder, 0)
    assert isinstance(beat, RankBeat) and beat.status == "failed"


def test_the_beat_of_an_attempt_is_not_hidden_by_another_whose_clock_was_ahead(ranks: Ranks) -> None:
    ranks.host("a", _beat(0, 59, step=59, attempt_key="slurm:6:0"))
    ranks.one(0, 1, step=1)
    assert ranks.read() == [(0, 1), (0, 59)] or ranks.read() == [(0, 59), (0, 1)]
    beat = read_rank(ranks.folder, 0, key=_KEY)
    assert isinstance(beat, RankBeat) and beat.step == 1
    assert read_rank(ranks.folder, 0, key="slurm:8:0") is None
    assert [beat.step for beat in newest_beats(read_ranks(ranks.folder))] == [59]


def test_a_rank_is_found_on_another_host_than_the_readers(ranks: Ranks) -> None:
    ranks.host("a", _beat(0, 5, step=5))
    ranks.host("b", _beat(1, 5, step=7))
    beat = read_rank(ranks.folder, 1, key=_KEY, host="a")
    assert isinstance(beat, RankBeat) and beat.step == 7


@cases(
    ("name", "text", "problem"),
    [
        ("bad-0123abcd.json", '{"ranks": [{"rank": 5', "is not JSON"),
        ("bad-0123abcd.json", "", "is empty"),
        ("bad-0123abcd.json", "[]", "holds a JSON list"),
        ("bad-0123abcd.json", '{"ranks": {"5": {}}}', "ranks: \"{'5': {}}\" is not a list"),
        ("bad-0123abcd.json", '{"ranks": [{"rank": -1}]}', "ranks[0].rank: '-1' is no rank"),
        ("bad-0123abcd.json", '{"ranks": [{"rank": "five"}]}', "ranks[0].rank: 'five' is no rank"),
        ("bad-0123abcd.json", '{"ranks": [{"rank": true}]}', "ranks[0].rank: 'True' is no rank"),
        ("bad-0123abcd.json", '{"ranks": [{"rank": 1e300}]}', "ranks[0].rank: '1e+300' is no rank"),
        ("bad-0123abcd.json", '{"ranks": [{}]}', "ranks[0].rank: 'None' is no rank"),
        ("bad-0123abcd.json", '{"ranks": [' + " " * 2**20 + "]}", "is larger than"),
        ("bad-0123abcd.json", "[" * 100_000, "is not JSON"),
    ],
    ranks=Ranks,
)
def test_a_file_of_a_host_that_is_wrong_costs_itself_alone(ranks: Ranks, name: str, text: str, problem: str) -> None:
    ranks.host("a", _beat(0, 5, step=5))
    path = ranks.write(name, text)
    assert ranks.read() == [(0, 5)]
    (unreadable,) = [found for found in read_ranks(ranks.folder) if isinstance(found, Unreadable)]
    assert str(path) in str(unreadable)
    assert problem in str(unreadable)


def test_a_wrong_entry_costs_itself_and_a_wrong_value_its_key(ranks: Ranks) -> None:
    ranks.host("a", _beat("x", 5), _beat(1, 5, step="many"), _beat(2, 5, step=5))
    first, second, unreadable = read_ranks(ranks.folder)
    assert isinstance(first, RankBeat) and isinstance(second, RankBeat) and isinstance(unreadable, Unreadable)
    assert (first.rank, first.step, first.problems) == (1, None, ("step: 'many' is not a finite number",))
    assert (second.rank, second.step, second.problems) == (2, 5, ())
    assert "ranks[0].rank: 'x' is no rank" in unreadable.reason


def test_far_too_many_ranks_are_cut(ranks: Ranks) -> None:
    ranks.write("a-0123abcd.json", json.dumps({"ranks": [{"rank": rank} for rank in range(10_000)]}))
    found = read_ranks(ranks.folder)
    assert len(found) == MAX_RANKS_OF_HOST + 1
    assert f"more than {MAX_RANKS_OF_HOST} ranks" in str(found[-1])
    assert len(read_ranks(ranks.folder, limit=100)) == 101


@cases("name", ["a-0123abc.json", "a-0123abcg.json", "-0123abcd.json", ".a-0123abcd.json", "a.json"], ranks=Ranks)
def test_only_the_files_of_hosts_are_files_of_hosts(ranks: Ranks, name: str) -> None:
    ranks.write(name, json.dumps({"ranks": [_beat(0, 5)]}))
    assert (ranks.read(), host_files(ranks.folder)) == ([], [])


def test_links_are_not_followed(ranks: Ranks, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(json.dumps({"ranks": [_beat(0, 5)]}))
    (tmp_path / "ranks" / "a-0123abcd.json").symlink_to(tmp_path / "elsewhere")
    (found,) = read_ranks(ranks.folder)
    assert "is a symbolic link" in str(found)


@cases("host", ["node-7.example.org", "", ".hidden", "../../etc/x", "a\nb", "ü", "x" * 1000], ranks=Ranks)
def test_a_host_may_be_called_anything(ranks: Ranks, host: str) -> None:
    name = host_file(host, "0123abcd")
    assert Path(name).parent == Path("ranks")
    beats = HostBeats(host=host, ranks=(RankBeat(rank=3, step=1, attempt_key=_KEY),))
    ranks.write(Path(name).name, json.dumps(beats.to_json()))
    assert host_files(ranks.folder) == [name]
    read = read_host(ranks.folder, name)
    assert isinstance(read, HostBeats) and read.host == host
    assert ranks.read(host=host) == [(3, 1)]


def test_the_files_of_hosts_that_are_gone_do_not_gather(ranks: Ranks) -> None:
    now = 1767225600.0  # 2026-01-01T00:00:00Z
    ranks.host("gone", _beat(0, 0, attempt_key="slurm:6:0"))
    ranks.host("ours", _beat(0, 0))
    ranks.host("both", _beat(0, 0), _beat(1, 0, attempt_key="slurm:6:0"))
    ranks.host("recent", _beat(0, 59, attempt_key="slurm:6:0"))
    ranks.write("torn-0123abcd.json", "{")
    ranks.one(3, 0, attempt_key="slurm:6:0")
    remove_old_hosts(ranks.folder, _KEY, now + 90)
    names = {path.name.partition("-")[0] for path in (ranks.folder / "ranks").iterdir()}
    assert names == {"ours", "both", "recent", "torn", "3.json"}
