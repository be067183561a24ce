"""Recognises what is no evidence in a log: quotations, and reports of something that is no failure.

The words of code, of echoed commands, arguments and settings are a program's own and do not describe what happened. A
line is judged by itself and by the lines before it, so that the result does not depend on how a log is cut into pieces.
"""

from __future__ import annotations

import functools
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# A traceback shows no more lines of one expression.
LINES_BEFORE = 12
# Lines that a configuration has before a setting whose value is a sentence.
_NEAR = 4
_ALIKE = 2

COLOUR = r"\x1b\[[0-9;:?]*[A-Za-z]"
# Labels of launchers: `[rank3]: `, `12: `, `(Worker pid=7, ip=10.0.0.1) `, `[1,3]<stderr>:`.
_LABEL = (
    r"(?:(?:\[\d{1,9}, ?\d{1,6}\]<std\w{3}>:|\[[\w: -]{1,40}\]:|\[default\d{1,4}\]|\d{1,6}:"
    r"|\([\w:.-]{1,60} pid=\d{1,9}[^)\n]{0,60}\))[ \t]?){1,3}"
)
_STAMP = (
    r"(?:[\[(]?\d[\d\-/:.,TZ+ ]{7,40}[\])]?[ \t]*)?(?:[\[(]?(?:INFO|DEBUG|NOTICE)[\])]?[ \t:|-]*)?"
    r"(?:\[[\w./-]{1,80}:\d{1,6}(?::\w{1,60})?\] ?|[a-z_][\w.]{0,60}(?::\d{1,6})? ?[:-] )?"
)
_FRAME = r'[|+ \t]*File "[^"\n]{1,4096}", line \d{1,9}(?:, in .{1,400})?\s*'
_NUMBERED = r"[ \t]*(?:-{1,6}> ?)?\d{1,6}(?:[ \t].*)?"
_NOTEBOOK_FRAME = r"(?:File|Cell|<ipython-input|[~/]).{1,400}(?:line \d{1,9}|:\d{1,9}, in |\bin )"
_LAUNCHED = (
    "srun|sbatch|salloc|mpirun|mpiexec|torchrun|python[0-9.]{0,5}|accelerate|deepspeed|horovodrun|colossalai|ray|bash"
    "|sh|docker|podman|apptainer|singularity|uv|conda|pip"
)
_ARGUMENTS = (
    r"[Cc]md|[Cc]ommand(?:[ _]line)?|(?:sys\.)?argv|[Aa]rgs|[Aa]rguments|[Cc]onfig(?:uration)?|[Hh]yper-?parameters"
    r"|[Hh]params|[Ss]ettings|[Oo]ptions|[Ee]nvironment|[Oo]verrides"
)
# Each begins a line, after its label.
_QUOTED = "|".join((
    # Statements; the frame above may be missing.
    r"[ \t]+(?:raise [\w.]+(?:\(|[ \t]*$)|assert \S|except\b.{0,200}:[ \t]*$)",
    r"[ \t]+(?:if|elif|while) .{1,400}:(?:[ \t]*$| \w)",
    # Code with its number, as notebooks, pytest and rich show it; variables in rich's frames.
    r"-{1,6}> ?\d{1,6}\b|>[ \t]{4,}(?!\[)\S|[│|][ \t]*[❱>][ \t]*\d{1,6}\b|│[ \t]+\d{1,6}[ \t]|│[ \t]*[│╭╰]",
    # Commands, as `set -x`, a prompt, an interpreter or a launcher echoes them.
    _STAMP + r"(?:\+{1,6} \S|\$ \S)",
    # A debugger, a difference of two files, a search through files.
    r"-> \S|\(i?[Pp]db\+{0,2}\) |[+-][ \t]{3,}\S|[\w./-]{1,200}\.\w{1,5}[:-]\d{1,6}[:-][ \t]{2,}\S",
    r">>> |\.\.\. \S|In \[\d{1,5}\]: |#(?:SBATCH|PBS|BSUB|!)",
    r"\[?[\w.-]{1,60}@[\w.-]{1,60}[: ]?[~\w/.-]{0,200}\]?[$#%] ?\S|\([\w.-]{1,60}\) [^$\n]{0,120}\$ \S",
    r"(?:exec |nohup |sudo |time |env )?(?:[A-Z_]\w{0,60}=\S{0,200} ){0,9}(?:" + _LAUNCHED + r")(?: [^:\n]{0,400}?)?"
    r"(?: --?[A-Za-z]| \S{1,300}\.(?:py|sh)\b(?!:))(?!.{0,400}: error: )",
    r"(?:export |declare -x |setenv )\w|[A-Z][A-Z0-9_]{2,60}=",
    _STAMP + r"(?:(?:\w{1,20} ){0,2}(?:" + _ARGUMENTS + r")[ \t]*(?:[:=](?!=)|[{\[(])"
    r"|(?:[Rr]unning|[Ee]xecuting|[Ll]aunching) ?\w{0,20}:)",
    # Arguments: Namespace(...), `flag ..... value` of Megatron-LM, `--flag value`, `name=value,` of Transformers.
    _STAMP + r"[\w.]{0,80}(?:Namespace|Config|Configuration|Arguments|Args|Params|Parameters|Settings|Options)\(",
    r"[ \t]*[\w.-]{1,80} \.{5,} ?\S|[ \t]*--?[A-Za-z][\w.-]{0,80}(?:[ =:.]|$)",
    r"[ \t]*(?!\w{0,40}(?:loss|norm|grad|ppl))\w{1,80}=.{0,2000},[ \t]*$",
))  # fmt: skip
# What a model was asked, and what it answered; the beginnings look like types of exceptions.
_GENERATED = _STAMP + (
    r"[\"']?(?:[Pp]rompt|[Cc]ompletion|[Gg]enerat(?:ed|ion)(?: text)?|[Qq]uestion|[Aa]nswer|[Ii]nstruction|[Aa]ssistant"
    r"|[Hh]uman)[\"']? ?[:=] ?\S"
)
# The command that an exception names.
_COMMAND = r"[Cc]ommand ['\"\[].{1,4096}['\"\]] (?:returned non-zero|died with|timed out|failed|exited)"
_KEY = r"""[ \t]*(?:- )?["']?(?P<key>[a-z_][\w.\-/]{0,60})["']?[ \t]{0,30}:(?=[ \t]|["'\[{(]|$)"""
# A key and its value, neither of which is a sentence.
_SETTING = _KEY + r"""[ \t]*(?:[\[{(].*|["'][^"'\n]*["'],?|[-+\w./]*,?)[ \t]*$"""
# `key = "value"`, and a row of a table with a key and its value.
_ASSIGNED = r"""[ \t]*(?P<key>[a-z_][\w.\-]{0,60})[ \t]{0,30}=[ \t]{0,30}["'][^"'\n]*["'],?[ \t]*$"""
_CELLS = r"[│┃║][ \t]*(?P<key>[a-z_][\w.\-/]{0,60})[ \t]*[│┃║]"
# An item of a list in YAML or JSON, and the line that begins the list.
_ITEM = r"""[ \t]*(?:- (?![\w.-]{1,60}:[ \t]).{0,400}|["'][^"'\n]{0,400}["'],?[ \t]*)$"""
_LIST = r"""[ \t]*(?:- )?["']?(?P<key>[a-z_][\w.\-/]{0,60})["']?[ \t]{0,30}:[ \t]*\[?[ \t]*$"""
# A JSON object, a dict or a list in one line, and the key before a place in it.
_INLINE = r"""[ \t]*[{\[(]+[ \t]*["']\w"""
_INLINE_KEY = r"""["'](\w[\w.\- ]{0,60})["']\s?:\s?[^\n]{0,2}(?:["'][^"'\n]*|[^"',\n]*)$"""
# Keys of an object that is a record of a log.
_RECORD_KEY = (
    r"""["'](?:level|levelname|severity|lvl|msg|message|reason|health|status|state|event|time|timestamp|ts|asctime"""
    r"""|error)["']\s?:"""
)
# Keys with what a program reports as their values.
_REPORT = (
    r"(?:.*[_.\-])?(?:messages?|msg|error\w*|err|exc\w*|traceback|stack\w*|reason|status|state|description|details?|stdout"
    r"|stderr|logs?|event|text|summary|cause|failure|signal|exit_?code|oomkilled|body|\w*loss\w*|\w*norm|\w*grad\w*|ppl"
    r"|perplexity|kernel|dmesg)"
)


_DENIALS = (
    "not a failure", "not an error", "is no failure", "is no error", "safely ignored", "can be ignored",
    "safe to ignore", "this is expected", "(optional", "[optional", "(planned",
)  # fmt: skip

# Of the next attempt's output: the reason of the restart names what the attempt before has failed of.
_NOTICE = "restarted by Trainwarden: "


@functools.lru_cache(maxsize=16)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def is_quoted(line: str, at: int, before: Sequence[str]) -> bool:
    """Return whether the words at a place of a line are quoted, or reported as no failure.

    Args:
        line: without its end.
        at: where the words begin.
        before: up to `LINES_BEFORE` lines before it, the nearest last.
    """
    if 0 <= line.find(_NOTICE) < at:
        return True
    label, plain = unlabelled(line)
    is_raised = is_exception(plain)
    is_error = is_raised and plain.partition(":")[0].endswith(("Error", "Exception"))
    if not is_error and any(map(plain.lower().__contains__, _DENIALS)):
        return True
    if not is_error and _compiled(_GENERATED).match(plain):
        return True
    if is_raised:
        return is_in_command(plain, at - len(line) + len(plain))
    if _compiled(_QUOTED).match(plain):
        return True
    if plain[:1] in (" ", "\t") and _is_shown_code(label, plain, before):
        return True
    if _compiled(_INLINE).match(plain):
        if _compiled(_RECORD_KEY).search(plain):
            return False
        key = _compiled(_INLINE_KEY).search(plain[: max(0, at - len(line) + len(plain))])
        return key is not None and not _is_report(key[1])
    for setting in (_ASSIGNED, _CELLS):
        if found := _compiled(setting).match(plain):
            return not _is_report(found["key"])
    return _is_setting(label, plain, before) or _is_item(label, plain, before)


def unlabelled(line: str) -> tuple[str, str]:
    """Return the label that a launcher has put before a line, and the line without it and without colours."""
    if "\x1b" in line:
        line = _compiled(COLOUR).sub("", line)
    if line[:1] not in "[(0123456789":
        return "", line
    found = _compiled(_LABEL).match(line)
    return (found[0].strip(), line[found.end() :]) if found else ("", line)


def is_exception(plain: str) -> bool:
    """Return whether the line begins as the last line of a traceback does: `Type: …`."""
    name = plain.partition(":")[0].rpartition(".")[2]
    is_class = name[:1].isupper() and not name.isupper() and name != "Error"
    return name.isidentifier() and (is_class or (name.endswith("error") and "." in plain.partition(":")[0]))


def _is_shown_code(label: str, plain: str, before: Sequence[str]) -> bool:
    """Return whether the line stands below a frame of a traceback, further in than it."""
    indent, numbered = _indent(plain), _compiled(_NUMBERED).fullmatch(plain) is not None
    for line in reversed(before):
        other, text = unlabelled(line)
        if other != label or not text.strip():
            continue
        if _compiled(_FRAME).fullmatch(text):
            return _indent(text) < indent
        if numbered and _compiled(_NOTEBOOK_FRAME).match(text):
            return True
        if text[:1] not in " \t" and not (numbered and _compiled(_NUMBERED).fullmatch(text)):
            return False
    return False


def _is_setting(label: str, plain: str, before: Sequence[str]) -> bool:
    """Return whether the line is a setting of a configuration: a key that reports nothing, among plain settings."""
    found = _compiled(_KEY).match(plain)
    if not found or _is_report(found["key"]):
        return False
    near = [text for other, text in map(unlabelled, before[-_NEAR:]) if other == label]
    return sum(1 for text in near if _compiled(_SETTING).match(text)) >= _ALIKE


def _is_item(label: str, plain: str, before: Sequence[str]) -> bool:
    """Return whether the line is an item of a list of settings."""
    if not _compiled(_ITEM).match(plain):
        return False
    for other, text in map(unlabelled, reversed(before)):
        if other != label:
            continue
        if found := _compiled(_LIST).match(text):
            return not _is_report(found["key"])
        if not _compiled(_ITEM).match(text):
            return False
    return False


def is_in_command(plain: str, at: int) -> bool:
    """Return whether a place in an exception's message is in the command that it names."""
    found = _compiled(_COMMAND).search(plain)
    return found is not None and found.start() < at < found.end()


def _is_report(key: str) -> bool:
    return _compiled(_REPORT).fullmatch(key.lower()) is not None


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" \t|"))
