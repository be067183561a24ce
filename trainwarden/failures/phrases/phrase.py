"""How a phrase that a tool prints is written down."""

# A text is found as it stands; a pair is a text that must be there and a regular expression that then decides, so that
# none is compiled in vain. All in lower case, as the messages are made before they are compared. Expressions stay
# linear: no repetition within a repetition, and every gap is bounded.
Phrase = str | tuple[str, str]
Phrases = tuple[tuple[str, tuple[Phrase, ...]], ...]
