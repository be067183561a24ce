"""What is printed by models, their numbers and their gradients."""

from trainwarden.failures.phrases.phrase import Phrases

PROGRAM: Phrases = (
    ("missing_module", ("no module named '", "cannot open shared object file", "undefined symbol: ")),
    ("loss_scale", (
        "loss scale already at minimum",
        "minimum loss scale reached",
        ("loss scale", "loss scale reached (its )?minimum"),
    )),
    ("numeric", (
        "unexpected result nan",
        ("found", r"\bfound (nan|inf|-inf)\b.{0,20}\b(in|for)\b"),
        ("nan iterations", "number of nan iterations: +[1-9]"),
        ("loss",
         (r"\bloss\w*'?( value)?( in \S{1,40})?( is| was| are| became| becomes| has become| went| to| of|:| =|="
          r"|==|\(){0,3} ?(now )?(\[?tensor\()?[+-]?(nan|inf|infinite|infinity|non-?finite|not finite)\b")),
        ("returned in `training_step`", "loss returned in `training_step` is nan or inf"),
        ("grad",
         (r"\bgrad(ient)?s?[ _]?(norm)?s?( is| was| are| became| contains?| has| have|:| =|=){0,2} ?[+-]?(nan"
          r"|inf|infinite|infinity|non-?finite|not finite)\b")),
        ("gradients", r"\bnorm\b.{0,60}\bgradients\b.{0,60}\bis non-finite"),
        ("in",
         (r"\b(nan|inf|non-?finite)( values?|s)? (were |was )?(detected |found )?(in|for) .{0,40}\b(loss"
          r"|grad\w*|logits|weights)")),
        ("detected nan", "detected nan and/or inf values in"),
        ("returned nan values", r"function '\w{1,60}' returned nan values in"),
        "probability tensor contains either",
    )),
    ("autograd_error", (
        "modified by an inplace operation",
        "does not require grad and does not have a grad_fn",
        "trying to backward through the graph a second time",
        "expected to have finished reduction in the prior iteration",
        "expected to mark a variable ready only once",
    )),
    ("device_mismatch", (
        "expected all tensors to be on the same device",
        ("should be the same", r"input type \(.{1,60}\) and (weight|bias) type \(.{1,60}\) should be the same"),
    )),
    ("shape_mismatch", (
        "shapes cannot be multiplied",
        "must match the size of tensor",
        "must match the existing size",
        "sizes of tensors must match",
        ("is invalid for input of size", "shape '.{1,80}' is invalid for input of size"),
        "could not be broadcast together",
        ("expected scalar type", r"expected scalar type \w{1,20} but found"),
        "have the same dtype",
        ("to match target batch_size", "expected input batch_size .{1,20}to match target batch_size"),
    )),
    ("model_creation", (
        "unrecognized configuration class",
        "unrecognized model",
        "does not recognize this architecture",
        "is not a valid model identifier",
        "does not appear to have a file named",
        ("can't load",
         ("can't load (tokenizer|the model|the configuration|image processor|feature extractor|config) (for|of)")),
        ("implementation", r"has no \w{1,20} implementation"),
    )),
)  # fmt: skip
