"""What a client says it takes."""

from __future__ import annotations

OPENMETRICS = "application/openmetrics-text"
# A client that names no version means any; those of today say 1.0.0, older ones 0.0.1, which reads the same.
OPENMETRICS_VERSIONS = {"", "0.0.1", "1.0.0"}
_TEXT = (("text/plain", ("", "0.0.4")), ("text/*", ("",)), ("*/*", ("",)))


def accepts_gzip(header: str) -> bool:
    """Tell whether an Accept-Encoding header asks for gzip: named, and not with a weight of zero."""
    return any(name == "gzip" and weight > 0 for name, _, weight in _offers(header))


def prefers_openmetrics(header: str) -> bool:
    """Tell whether an Accept header asks for OpenMetrics 1.0.0 at least as much as for the text format 0.0.4."""
    offers = _offers(header)
    openmetrics = max((q for name, v, q in offers if name == OPENMETRICS and v in OPENMETRICS_VERSIONS), default=0.0)
    text = 0.0
    for wanted, versions in _TEXT:  # what is named most exactly counts
        named = [q for name, version, q in offers if name == wanted and version in versions]
        if named:
            text = max(named)
            break
    return openmetrics > 0 and openmetrics >= text


def _offers(header: str) -> list[tuple[str, str, float]]:
    """Return (name, version, weight) of each part of a header; a weight that is none counts as zero."""
    found = []
    for part in header.lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        named = {key.strip(): value.strip() for key, _, value in (each.partition("=") for each in parameters)}
        try:
            weight = float(named.get("q", "1"))
        except ValueError:
            weight = 0.0
        found.append((name, named.get("version", ""), weight if 0 <= weight <= 1 else 0.0))
    return found
