"""Escape sequences of terminals: colours, links, moves of the cursor."""

import re

_ESCAPE = b"\x1b"
# Control sequences, commands of the operating system (links, titles), character sets and single functions.
_SEQUENCE = re.compile(
    rb"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,2048}(?:\x07|\x1b\\)?|[ #()*+][!-~]|[=>78cDEHMNOZ\\])"
)


def without_escapes(text: bytes) -> bytes:
    """Return the text with its sequences removed; each line begins where it began, empty lines fill the gaps."""
    at = text.find(_ESCAPE)
    if at < 0:
        return text
    parts: list[bytes] = []
    done = 0
    while at >= 0:
        start = text.rfind(b"\n", done, at) + 1 or done
        end = text.find(b"\n", at)
        end = len(text) if end < 0 else end
        plain = _SEQUENCE.sub(b"", text[start:end])
        parts += [text[done:start], plain, b"\n" * (end - start - len(plain))]
        done = end
        at = text.find(_ESCAPE, end)
    return b"".join((*parts, text[done:]))
