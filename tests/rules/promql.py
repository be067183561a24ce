"""PromQL as a tree whose nodes know their place in the text: enough to judge rules, and to break them on purpose."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"(?P<blank>\s+|\#[^\n]*)"
    r"|(?P<string>\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`[^`]*`)"
    r"|(?P<duration>(?:\d+(?:ms|[smhdwy]))+)(?!\w)"
    r"|(?P<number>0x[0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[a-zA-Z_:][\w:]*)"
    r"|(?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^()<>{}\[\],=:@])"
)
# From the loosest on.
_BINARY = [{"or"}, {"and", "unless"}, {"==", "!=", ">", "<", ">=", "<="}, {"+", "-"}, {"*", "/", "%", "atan2"}, {"^"}]
COMPARISONS = frozenset(_BINARY[2])
SETS = _BINARY[0] | _BINARY[1]
AGGREGATIONS = frozenset(
    {"sum", "min", "max", "avg", "group", "stddev", "stdvar", "count", "count_values", "bottomk", "topk", "quantile"}
)
_GROUPING = ("by", "without")


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class LabelList:
    """`by (cluster, run_id)`: the keyword, the labels, and where each label and the whole stand."""

    keyword: str
    labels: tuple[Token, ...]
    start: int
    end: int

    @property
    def names(self) -> list[str]:
        return [label.text for label in self.labels]


@dataclass(frozen=True)
class Node:
    """`kind` is binary, aggregation, call, selector, range, unary, number, string or parentheses.

    `name` is the operator, function or metric; `window` the token of a range; `matchers` are (label, operator, value).
    """

    kind: str
    start: int
    end: int
    name: str = ""
    children: tuple[Node, ...] = ()
    lists: tuple[LabelList, ...] = ()
    matchers: tuple[tuple[str, str, str], ...] = ()
    operator: Token | None = None
    window: Token | None = None

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


@functools.cache
def parse(text: str) -> Node:
    """Return the tree of an expression. Raises `ValueError` for what promtool would refuse too."""
    parser = _Parser(text)
    node = parser.binary(0)
    if parser.peek() is not None:
        raise parser.error("the end")
    return node


def metrics(node: Node) -> Iterator[str]:
    """Yield the name of each metric that an expression selects; a pattern where it selects by one."""
    for each in node.walk():
        if each.kind == "selector":
            by_name = [value for label, _, value in each.matchers if label == "__name__"]
            yield each.name or "".join(by_name)


def may_answer(node: Node, shown: Collection[str]) -> bool:
    """Return whether an expression can have a result where only the metrics in `shown` have series, besides ALERTS."""
    if node.kind == "selector":
        return node.name in shown or node.name in {"", "ALERTS"}
    if node.kind == "call" and node.name in {"absent", "absent_over_time", "scalar"}:
        return True
    if node.kind == "binary" and node.name == "or":
        return any(may_answer(each, shown) for each in node.children)
    if node.kind == "binary" and node.name == "unless":
        return may_answer(node.children[0], shown)
    return all(may_answer(each, shown) for each in node.children)


@dataclass
class _Parser:
    text: str
    tokens: list[Token] = field(default_factory=list)
    at: int = 0

    def __post_init__(self) -> None:
        place = 0
        while place < len(self.text):
            match = _TOKEN.match(self.text, place)
            if match is None or match.lastgroup is None:
                raise ValueError(f"no PromQL at {self.text[place : place + 20]!r}")
            if match.lastgroup != "blank":
                self.tokens.append(Token(match.lastgroup, match[0], match.start(), match.end()))
            place = match.end()

    def peek(self, ahead: int = 0) -> Token | None:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else None

    def next_is(self, *texts: str) -> bool:
        token = self.peek()
        return token is not None and token.kind in {"name", "sign"} and token.text.lower() in texts

    def take(self, *texts: str) -> Token:
        if texts and not self.next_is(*texts):
            raise self.error(" or ".join(texts))
        token = self.peek()
        if token is None:
            raise self.error("more")
        self.at += 1
        return token

    def error(self, expected: str) -> ValueError:
        token = self.peek()
        return ValueError(f"{token.text if token else 'the end'!r} in {self.text!r}, expected {expected}")

    def binary(self, level: int) -> Node:
        if level == len(_BINARY):
            return self.unary()
        left = self.binary(level + 1)
        while self.next_is(*_BINARY[level]):
            operator = self.take()
            if self.next_is("bool"):
                self.take()
            lists = []
            while self.next_is("on", "ignoring", "group_left", "group_right"):
                lists.append(self.label_list())
            right = self.binary(level if level == len(_BINARY) - 1 else level + 1)
            name = operator.text.lower()
            left = Node("binary", left.start, right.end, name, (left, right), tuple(lists), operator=operator)
        return left

    def label_list(self) -> LabelList:
        keyword = self.take()
        if not self.next_is("("):  # group_left without a list
            return LabelList(keyword.text.lower(), (), keyword.start, keyword.end)
        self.take("(")
        labels = []
        while not self.next_is(")"):
            labels.append(self.take())
            if not self.next_is(")"):
                self.take(",")
        end = self.take(")").end
        return LabelList(keyword.text.lower(), tuple(labels), keyword.start, end)

    def unary(self) -> Node:
        if self.next_is("-", "+"):
            sign = self.take()
            inner = self.unary()
            return Node("unary", sign.start, inner.end, sign.text, (inner,))
        return self.postfix(self.primary())

    def postfix(self, node: Node) -> Node:
        while self.next_is("[", "offset", "@"):
            sign = self.take()
            if sign.text == "[":
                window = self.take()
                while not self.next_is("]"):
                    self.take()
                node = Node("range", node.start, self.take("]").end, "", (node,), window=window)
                continue
            if self.next_is("-"):
                self.take()
            end = self.take().end
            if self.next_is("("):  # @ start()
                self.take("(")
                end = self.take(")").end
            node = Node("range", node.start, end, sign.text, (node,))
        return node

    def primary(self) -> Node:
        token = self.peek()
        if token is None:
            raise self.error("an expression")
        if token.kind in {"number", "string", "duration"}:
            self.take()
            return Node("string" if token.kind == "string" else "number", token.start, token.end, token.text)
        if self.next_is("("):
            self.take()
            inner = self.binary(0)
            return Node("parentheses", token.start, self.take(")").end, "", (inner,))
        if self.next_is("{"):
            return self.selector("", token.start, token.end)
        if token.kind != "name":
            raise self.error("an expression")
        self.take()
        name = token.text
        if name.lower() in AGGREGATIONS and self.next_is("(", *_GROUPING):
            lists = [self.label_list()] if self.next_is(*_GROUPING) else []
            children, end = self.arguments()
            if self.next_is(*_GROUPING):
                lists.append(self.label_list())
                end = lists[-1].end
            return Node("aggregation", token.start, end, name.lower(), children, tuple(lists))
        if self.next_is("("):
            children, end = self.arguments()
            return Node("call", token.start, end, name, children)
        if name.lower() in {"inf", "nan"}:
            return Node("number", token.start, token.end, name)
        return self.selector(name, token.start, token.end)

    def arguments(self) -> tuple[tuple[Node, ...], int]:
        self.take("(")
        children = []
        while not self.next_is(")"):
            children.append(self.binary(0))
            if not self.next_is(")"):
                self.take(",")
        return tuple(children), self.take(")").end

    def selector(self, name: str, start: int, end: int) -> Node:
        matchers = []
        if self.next_is("{"):
            self.take()
            while not self.next_is("}"):
                label, operator, value = self.take(), self.take("=", "!=", "=~", "!~"), self.take()
                matchers.append((label.text, operator.text, value.text[1:-1]))
                if not self.next_is("}"):
                    self.take(",")
            end = self.take("}").end
        return Node("selector", start, end, name, matchers=tuple(matchers))
