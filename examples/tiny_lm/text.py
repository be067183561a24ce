"""The text to learn from: the log of a lighthouse that never was, told by a small grammar."""

import random

_SEED = 1871

_OPENINGS = (
    "At {hour} the {wind} wind {turned}.",
    "The lamp was lit at {hour} and burned {how} until {hour}.",
    "{person} came up the stairs at {hour} with {thing}.",
    "No ship was seen before {hour}.",
    "A {ship} passed {side} of the rock at {hour}, {doing}.",
    "Fog came in from the {quarter} and stayed {long}.",
    "We heard {sound} from the {quarter} and answered with the horn.",
)
_MIDDLES = (
    "{person} wrote it down, and I read it {how}.",
    "The glass stood at {number} and was {falling}.",
    "We trimmed the wick, cleaned {thing} and wound the clock.",
    "I counted {number} waves between two flashes and told {person}.",
    "The oil for {number} nights is in the store beside {thing}.",
    "{person} says that the {wind} wind brings {sound}, and so far it has.",
    "A {ship} showed {number} lights and {turned} to the {quarter}.",
    "There was {sound} below, which proved to be {thing}.",
)
_CLOSINGS = (
    "All is well on the rock.",
    "I have nothing more to add for this night.",
    "{person} has the next watch.",
    "The light was never out.",
    "Tomorrow we expect the boat, if the {wind} wind allows.",
)
_WORDS = {
    "hour": ("four", "half past five", "six", "a quarter to seven", "nine", "midnight", "the second bell"),
    "wind": ("cold", "westerly", "steady", "salt", "northern", "light", "evening"),
    "turned": ("turned", "came round slowly", "changed its mind", "went down", "held its course"),
    "how": ("well", "without a flicker", "low", "twice", "with care", "badly", "as it should"),
    "person": ("Old Maren", "the keeper", "young Tobias", "the mate", "Ellen from the harbour", "my brother"),
    "thing": ("a coil of rope", "the brass", "the spare lens", "a basket of eggs", "the grey cat", "new paper"),
    "ship": ("schooner", "coal barge", "fishing boat", "mail steamer", "ship without a name", "brig"),
    "side": ("north", "south", "far to the west", "close on the lee side"),
    "doing": ("under half sail", "low in the water", "blowing for a pilot", "with her bell ringing", "quite alone"),
    "quarter": ("north", "south", "east", "west", "open sea", "land"),
    "long": ("all night", "for an hour", "until the tide turned", "longer than we liked"),
    "sound": ("a bell", "three long calls", "singing", "a gun", "the breaking of ice", "geese"),
    "number": ("two", "five", "eleven", "twenty", "thirty", "forty-one"),
    "falling": ("falling", "rising", "as still as a stone", "rising a little"),
}


def text(nights: int = 120) -> bytes:
    """The log of so many nights, the same every time; about 230 bytes a night."""
    rng = random.Random(_SEED)  # noqa: S311  # a story needs no secrets
    entries = []
    for night in range(1, nights + 1):
        sentences = [rng.choice(_OPENINGS), *rng.sample(_MIDDLES, rng.randint(2, 4)), rng.choice(_CLOSINGS)]
        told = [_tell(sentence, rng) for sentence in sentences]
        entries.append(f"Night {night}. " + " ".join(line[0].upper() + line[1:] for line in told))
    return "\n".join(entries).encode("ascii")


def _tell(sentence: str, rng: random.Random) -> str:
    return sentence.format(**{kind: rng.choice(words) for kind, words in _WORDS.items()})
