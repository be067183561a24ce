"""Names of nodes as SLURM shortens them become the names of single nodes."""

from __future__ import annotations

import itertools

import pytest

from tests.cases import cases
from trainwarden.clients.slurm.hostlist import expand_hostlist

LISTS = {
    "": [],
    "login1": ["login1"],
    "n[1-3]": ["n1", "n2", "n3"],
    "gpu[08-11,20],login1": ["gpu08", "gpu09", "gpu10", "gpu11", "gpu20", "login1"],
    "gpu[098-101]": ["gpu098", "gpu099", "gpu100", "gpu101"],
    "rack[1-2]node[7-8]": ["rack1node7", "rack1node8", "rack2node7", "rack2node8"],
    "q-dy-p5-[1-2]": ["q-dy-p5-1", "q-dy-p5-2"],
    "a[1]-ib,b": ["a1-ib", "b"],
}


@cases("text", LISTS)
def test_a_list_becomes_its_names(text: str) -> None:
    assert list(expand_hostlist(text)) == LISTS[text]


@cases("text", ["n[1-", "n[a-b]", "n[1-2]]", "n[]", "n1 n2", ",n1", "n[[1]]", "n[1-2-3]", "n" + 9 * "[1]"])
def test_another_text_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="nodes"):
        list(expand_hostlist(text))


def test_of_a_list_without_end_the_first_are_had_at_once() -> None:
    names = expand_hostlist("n[0-9999999999]m[0-9999999999]")
    assert list(itertools.islice(names, 3)) == ["n0m0", "n0m1", "n0m2"]
