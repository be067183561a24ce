"""The kinds of checkpoint folder that are known, each with what it promises."""

from collections.abc import Callable

from trainwarden.checkpoint.contents import Contents
from trainwarden.checkpoint.layouts import accelerate, dcp, deepspeed, lightning, megatron, orbax, transformers, verl
from trainwarden.checkpoint.verdict import Report

LAYOUTS: tuple[Callable[[Contents], Report], ...] = (
    dcp.look,
    megatron.look_distributed,
    megatron.look_legacy,
    deepspeed.look,
    lightning.look,
    transformers.look_trainer,
    transformers.look_model,
    accelerate.look,
    verl.look,
    orbax.look,
)
