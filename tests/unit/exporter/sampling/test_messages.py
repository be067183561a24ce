"""What a child tells: as little as is new, and the parent knows as much as if it had been told all."""

from __future__ import annotations

import pytest

from trainwarden_exporter.collectors.gpu import metrics as gpu_metrics
from trainwarden_exporter.core.exposition import render
from trainwarden_exporter.core.metric import Families, Family
from trainwarden_exporter.sampling.messages import View, apply_message, sample_line, state_line, task_states
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import SampleTask

Views = dict[tuple[str, str], View]


class Device:
    """A part that reads what is in `families`."""

    def __init__(self, name: str = "0") -> None:
        self.says(0.5)
        self.sampler = Sampler(SampleTask("nvidia", lambda: self.families, 1.0, 1.0, name))

    def says(self, ratio: float) -> None:
        families = Families()
        families.add(gpu_metrics.GPU_UTILIZATION_RATIO, ratio, gpu="0", uuid="")
        self.families: list[Family] = families.collected()


def shown(views: Views) -> bytes:
    return render((view.last.encoded, 0.0) for view in views.values())


def test_an_unchanged_sample_is_sent_as_one_word_and_is_a_new_one() -> None:
    device, views = Device(), Views()
    device.sampler.sample()
    views = apply_message(sample_line(device.sampler), "nvidia", views)
    first, told = views["0", ""], device.sampler.last.encoded
    device.sampler.sample()
    line = sample_line(device.sampler, told)
    assert b"utilization" not in line
    views = apply_message(line, "nvidia", views)
    assert views["0", ""].last.begun > first.last.begun
    assert b'gpu_utilization_ratio{gpu="0",uuid=""} 0.5' in shown(views)
    device.says(0.75)
    device.sampler.sample()
    views = apply_message(sample_line(device.sampler, told), "nvidia", views)
    assert b'gpu_utilization_ratio{gpu="0",uuid=""} 0.75' in shown(views)


def test_a_part_that_is_gone_leaves_no_sample() -> None:
    device = Device()
    device.sampler.sample()
    assert apply_message(sample_line(device.sampler, device.sampler.last.encoded), "nvidia", {}) == {}


def test_a_sample_as_before_where_there_was_none_is_refused() -> None:
    device = Device()
    device.sampler.sample()
    views = apply_message(state_line(task_states([device.sampler])), "nvidia", {})
    with pytest.raises(ValueError, match="refers to the one before, and there was none"):
        apply_message(sample_line(device.sampler, device.sampler.last.encoded), "nvidia", views)
