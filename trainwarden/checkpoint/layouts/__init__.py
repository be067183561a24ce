"""The known layouts of checkpoint folders, each with a check of the files that it requires."""

from collections.abc import Callable

from trainwarden.checkpoint.contents import CheckpointFiles
from trainwarden.checkpoint.layouts import accelerate, dcp, deepspeed, lightning, megatron, orbax, transformers, verl
from trainwarden.checkpoint.verdict import Findings

LAYOUTS: tuple[Callable[[CheckpointFiles], Findings], ...] = (
    dcp.check,
    megatron.check_distributed,
    megatron.check_legacy,
    deepspeed.check,
    lightning.check,
    transformers.check_trainer,
    transformers.check_model,
    accelerate.check,
    verl.check,
    orbax.check,
)
