"""The checkpoints that a run has saved, as its record keeps them."""

from trainwarden.record.files import Checkpoint

_KEPT = 3


class SavedCheckpoints:
    """The last three, newest first, and how many there ever were."""

    def __init__(self, latest: tuple[Checkpoint, ...] = (), count: int = 0) -> None:
        self.latest = latest
        self.count = count

    def add(self, checkpoint: Checkpoint) -> None:
        """Take a checkpoint that was saved just now."""
        others = tuple(one for one in self.latest if one.path != checkpoint.path)
        self.latest = (checkpoint, *others)[:_KEPT]
        self.count += 1

    def correct(self, checkpoint: Checkpoint) -> None:
        """Take what was found out later about one that is here already."""
        same = (checkpoint.path, checkpoint.time)
        self.latest = tuple(checkpoint if (one.path, one.time) == same else one for one in self.latest)
