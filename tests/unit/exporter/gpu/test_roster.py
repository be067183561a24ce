"""Which label a GPU has: after an exchange, a move, a loss, another division."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.waiting import wait_until
from trainwarden_exporter.collectors.gpu.roster import NodeRoster, Roster, RosterGpu, roster_gpus
from trainwarden_exporter.core.state_file import StateFile

BUSES = [f"0000:{number:02x}:00.0" for number in (0x1B, 0x3B, 0x86, 0xAF)]
UUIDS = [f"GPU-{letter}" for letter in "abcd"]


def roster(present: list[str] = BUSES, uuids: list[str] = UUIDS) -> Roster:
    """Return a roster of GPUs that were opened."""
    made = Roster()
    made.see(present)
    for minor, (bus, uuid) in enumerate(zip(present, uuids, strict=True)):
        made.identify(RosterGpu(0, bus, uuid, minor), present)
    return made


def found(made: Roster) -> list[tuple[str, str]]:
    return [(gpu.bus, gpu.uuid) for gpu in made.gpus]


def test_labels_follow_the_bus_and_a_new_address_has_the_next() -> None:
    made = roster()
    made.see(["0000:05:00.0", *BUSES])
    assert [gpu.index for gpu in made.gpus] == [0, 1, 2, 3, 4]
    assert found(made) == [*zip(BUSES, UUIDS, strict=True), ("0000:05:00.0", "")]


def test_two_gpus_that_changed_places_have_the_labels_of_their_slots() -> None:
    made = roster()
    made.identify(RosterGpu(0, BUSES[0], UUIDS[1]), BUSES)
    made.identify(RosterGpu(0, BUSES[1], UUIDS[0]), BUSES)
    assert found(made) == list(zip(BUSES, [UUIDS[1], UUIDS[0], *UUIDS[2:]], strict=True))


def test_of_two_gpus_that_changed_places_while_no_exporter_ran_none_has_the_uuid_of_the_other() -> None:
    made = Roster(roster().gpus)
    made.identify(RosterGpu(0, BUSES[0], UUIDS[1]), BUSES)
    assert found(made)[:2] == [(BUSES[0], UUIDS[1]), (BUSES[1], "")]


def test_gpus_to_which_the_driver_gives_one_uuid_are_known_by_their_addresses() -> None:
    made = roster(uuids=[UUIDS[0]] * 4)
    assert found(made) == [(bus, UUIDS[0]) for bus in BUSES]
    again = Roster(roster_gpus(made.to_json()))
    for bus in BUSES:
        again.identify(RosterGpu(0, bus, UUIDS[0]), BUSES)
    assert found(again) == found(made)


def test_a_gpu_at_the_address_of_one_that_is_missing_keeps_its_label_and_the_missing_one_its_own() -> None:
    made = roster()
    made.identify(RosterGpu(0, BUSES[2], UUIDS[3]), BUSES[:3])
    assert found(made) == [*zip(BUSES[:2], UUIDS[:2], strict=True), (BUSES[3], UUIDS[2]), (BUSES[2], UUIDS[3])]


def test_a_gpu_in_another_slot_keeps_its_label_and_adds_none() -> None:
    made, new = roster(), "0000:c0:00.0"
    present = [*BUSES[:3], new]
    made.see(present)
    made.identify(RosterGpu(0, new, UUIDS[3]), present)
    assert found(made) == list(zip(present, UUIDS, strict=True))


def test_a_gpu_that_was_never_opened_is_not_forgotten_for_another_at_its_address() -> None:
    made = roster(uuids=[*UUIDS[:2], "", UUIDS[3]])
    made.identify(RosterGpu(0, BUSES[2], UUIDS[3]), BUSES[:3])
    assert [(gpu.index, gpu.uuid) for gpu in made.gpus][2:] == [(2, ""), (3, UUIDS[3])]


def test_a_gpu_that_left_has_no_number_that_the_driver_gave_to_another() -> None:
    made = roster()
    for minor, bus in enumerate(BUSES[1:]):
        made.identify(RosterGpu(0, bus, UUIDS[minor + 1], minor), BUSES[1:])
    assert [gpu.minor for gpu in made.gpus] == [None, 0, 1, 2]


def test_a_gpu_on_the_bus_that_does_not_open_has_no_number_that_the_driver_gave_to_another() -> None:
    made = Roster(RosterGpu(index, bus, UUIDS[index], (2, 3, 0, 1)[index]) for index, bus in enumerate(BUSES))
    made.identify(RosterGpu(0, BUSES[1], UUIDS[1], 1), BUSES)
    assert [gpu.minor for gpu in made.gpus] == [2, 1, 0, None]


def test_partitions_are_numbered_anew_when_gpus_are_divided_otherwise_and_not_when_one_is_missing() -> None:
    devices = ["0000:05:00", "0000:26:00"]
    whole, halves = [f"{device}.0" for device in devices], [f"{device}.{part}" for device in devices for part in "01"]
    made = roster(whole, UUIDS[:2])
    made.repartition(halves)
    assert found(made) == [(halves[0], UUIDS[0]), (halves[1], ""), (halves[2], UUIDS[1]), (halves[3], "")]
    made.repartition(halves[:2])
    assert [gpu.bus for gpu in made.gpus] == halves, "the second device is missing"
    made.repartition(whole)
    assert found(made) == list(zip(whole, UUIDS, strict=False))


def test_a_roster_survives_as_it_is(tmp_path: Path) -> None:
    def load() -> NodeRoster:
        return NodeRoster(StateFile(tmp_path / "node/gpus.json", machine="machine"))

    load().keep(roster().to_json())
    assert load().gpus == roster().gpus
    load().identify(RosterGpu(0, BUSES[0], "GPU-new", 0, {"serial": "77"}), BUSES)
    assert load().gpus[0] == RosterGpu(0, BUSES[0], "GPU-new", 0, {"serial": "77"})


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    made = NodeRoster(StateFile(tmp_path / "file/gpus.json"))
    made.see(BUSES)
    made.see([*BUSES, "0000:c0:00.0"])
    assert len(made.value()) == 5
    assert len([record for record in caplog.records if "begins anew after a restart" in record.message]) == 1


def test_a_roster_that_found_the_disk_full_is_stored_once_there_is_room(tmp_path: Path) -> None:
    (tmp_path / "node").touch()
    path = tmp_path / "node/gpus.json"
    made = NodeRoster(StateFile(path, retry_seconds=0.01))
    made.keep(roster().to_json())
    (tmp_path / "node").unlink()
    wait_until(path.exists)
    assert NodeRoster(StateFile(path)).gpus == roster().gpus


@cases(
    "change",
    [{"index": -1}, {"index": "0"}, {"bus": "../../x"}, {"uuid": 'GPU-"}\n'}, {"minor": "x"}, {"info": None}],
)
def test_what_is_no_roster_is_refused(change: dict[str, Any]) -> None:
    entry = {"index": 0, "bus": BUSES[0], "uuid": "", "minor": None, "info": {}}
    assert roster_gpus([entry]) == [RosterGpu(0, BUSES[0])]
    with pytest.raises(ValueError, match="no GPU"):
        roster_gpus([entry | change])
    with pytest.raises(ValueError, match="same index"):
        roster_gpus([entry, entry | {"bus": BUSES[1]}])
