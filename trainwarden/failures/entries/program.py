"""What fails in the training program itself: its settings, its model, its numbers, its code."""

from trainwarden.failures.failure import Failure

_STOP, _AGAIN = False, True

SETTINGS: tuple[Failure, ...] = (
    Failure(
        "config_error", "configuration", "configuration", "user", "configuration",
        "error", "stop", _STOP,
        "The settings do not fit together or are not understood. Correct the argument or the file that the message "
        "names; a restart changes nothing.",
    ),
    Failure(
        "missing_module", "configuration", "configuration", "user", "configuration",
        "error", "stop", _STOP,
        "A package or a library cannot be imported. Install it into the image of the job, in the version that the "
        "program expects, and see that every node uses that image.",
    ),
    Failure(
        "compile_toolchain", "configuration", "configuration", "user", "configuration",
        "error", "stop", _STOP,
        "A kernel or a graph could not be compiled. Check compiler, CUDA_HOME and TORCH_CUDA_ARCH_LIST in the image "
        "and the GPU's generation; TORCH_COMPILE_DISABLE=1 runs without compiling.",
    ),
    Failure(
        "resource_limit", "configuration", "configuration", "process", "configuration",
        "error", "stop", _STOP,
        "A limit on open files, processes or threads was reached. Raise `ulimit -n` and `ulimit -u` in the job, use "
        "fewer data-loading workers, or set torch.multiprocessing's sharing strategy to file_system.",
    ),
)  # fmt: skip

MODEL: tuple[Failure, ...] = (
    Failure(
        "model_creation", "model_creation", "model_creation", "model", "user",
        "error", "stop", _STOP,
        "The model could not be built. Check its name, its configuration and the library's version.",
    ),
    Failure(
        "numeric", "numerical_instability", "training", "model", "unknown",
        "critical", "roll_back", _STOP,
        "Loss or gradients became NaN or infinite. Look at the learning rate, the data batch of that step, the "
        "gradient norm before it and the loss scale; if only one rank shows it, suspect its GPU.",
    ),
    Failure(
        "loss_scale", "numerical_instability", "training", "model", "configuration",
        "critical", "roll_back", _STOP,
        "The loss scale is at its minimum and gradients still overflow in float16. Train in bfloat16, or lower the "
        "learning rate and resume from the checkpoint before the scale began to fall.",
    ),
    Failure(
        "rerun_to_disambiguate", "numerical_instability", "training", "model", "unknown",
        "error", "restart", _AGAIN,
        "The training requested another run from its checkpoint, to distinguish a bad GPU from a bad batch.",
    ),
    Failure(
        "shape_mismatch", "exception", "training", "model", "user",
        "error", "stop", _STOP,
        "Tensors of shapes or types that do not fit were combined. Print the shapes at the line of the traceback; a "
        "changed batch, sequence length or vocabulary is the usual reason.",
    ),
    Failure(
        "device_mismatch", "exception", "training", "model", "user",
        "error", "stop", _STOP,
        "Tensors on different devices were combined. Move inputs, buffers and model to the rank's device; create new "
        "tensors with `device=`.",
    ),
    Failure(
        "autograd_error", "exception", "training", "model", "user",
        "error", "stop", _STOP,
        "The backward pass cannot go through this graph. Look for operations in place, a graph used twice, frozen or "
        "detached parameters; with DDP for parameters without gradient (find_unused_parameters=True).",
    ),
    Failure(
        "user_exception", "exception", "training", "user", "user",
        "error", "stop", _STOP,
        "The training script raised an exception. The traceback shows the line.",
    ),
)  # fmt: skip
