"""Expressions are read as Prometheus reads them, and broken in every way that is promised."""

from __future__ import annotations

import pytest

from tests.rules import promql
from tests.rules.mutants import mutants
from tests.rules.side_by_side import copied_rule, failures, numbers_in, unreadable, with_copies


def broken(expression: str, **others: str) -> dict[str, str]:
    """What was done → the expression that came of it."""
    return {each.what: " ".join(str(each.rule["expr"]).split()) for each in mutants({"expr": expression, **others})}


OPERATORS = [
    ("a or b and c", "or", ["a", "b and c"]),
    ("a unless b and c", "and", ["a unless b", "c"]),
    ("a + b > c * 2", ">", ["a + b", "c * 2"]),
    ("2 ^ 3 ^ 2", "^", ["2", "3 ^ 2"]),
    ("a > bool 1", ">", ["a", "1"]),
    ("a * on (x) group_left (y, z) b", "*", ["a", "b"]),
    ("-a - b", "-", ["-a", "b"]),
    ('a{b="}",c!~"d|e"} / 5', "/", ['a{b="}",c!~"d|e"}', "5"]),
    ("(a or b) == 1  # a comment > 5\n", "==", ["(a or b)", "1"]),
    ("rate(a[5m] offset 1h) < 0.5", "<", ["rate(a[5m] offset 1h)", "0.5"]),
    ("max_over_time((a > 1)[6h:5m]) >= 1e3", ">=", ["max_over_time((a > 1)[6h:5m])", "1e3"]),
]


def test_operators_bind_as_in_prometheus() -> None:
    for expression, outermost, operands in OPERATORS:
        root = promql.parse(expression)
        assert root.name == outermost, expression
        assert [expression[each.start : each.end] for each in root.children] == operands


# Whether an expression can have a result where only `a` is shown.
ANSWERING = [
    ("a", True),
    ("b", False),
    ("a > 1", True),
    ("a and b", False),
    ("a * on (x) group_left (y) b", False),
    ("a or b", True),
    ("b or on (x) a", True),
    ("b or c", False),
    ("a unless b", True),
    ("b unless a", False),
    ("sum by (x) (rate(b[5m]))", False),
    ("topk(1, a) + time()", True),
    ("-(b)", False),
    ("absent(b)", True),
    ("vector(1)", True),
    ("a - scalar(b)", True),
    ('ALERTS{alertname="c"}', True),
    ('{__name__=~"b.*"}', True),
]


def test_an_expression_can_have_a_result_where_its_metrics_are_shown() -> None:
    for expression, may in ANSWERING:
        assert promql.may_answer(promql.parse(expression), {"a"}) == may, expression


def test_what_is_no_promql_is_refused() -> None:
    for expression in ("a >", "sum by (a (b)", "a[5m", "a b", '{a="b"', "a $ b"):
        with pytest.raises(ValueError, match=r"expected|no PromQL at"):
            promql.parse(expression)


def test_metrics_are_those_that_are_selected_by_name_or_pattern() -> None:
    expression = 'label_replace(sum by (x) (a), "y", "$1", "z", "(.*)") or on (q) {__name__=~"b|c"} > time() - d'
    assert list(promql.metrics(promql.parse(expression))) == ["a", "b|c", "d"]


def test_a_comparison_is_turned_and_its_number_doubled_and_halved() -> None:
    assert broken("a > 85") == {
        "<= in a > 85": "a <= 85",
        "85 times 2": "a > (2 * (85))",
        "85 divided by 2": "a > (0.5 * (85))",
    }


def test_a_product_of_numbers_is_one_number_and_zero_is_none() -> None:
    assert [what for what in broken("a < 24 * 3600") if "times" in what] == ["24 * 3600 times 2"]
    assert list(broken("a > 0")) == ["<= in a > 0"]


def test_a_window_grows_and_shrinks() -> None:
    assert broken("rate(a[5m])") == {
        "window 5m times 4": "rate(a[1200000ms])",
        "window 5m divided by 4": "rate(a[75000ms])",
    }


def test_a_guard_and_an_alternative_are_removed() -> None:
    assert broken("a and on (c) b")["without and b"] == "a"
    assert broken("a unless on (c) b")["without unless b"] == "a"
    assert broken("a or b") == {"without or b": "a"}


def test_each_label_of_a_list_is_removed() -> None:
    made = broken("sum by (cluster, node) (a)")
    assert made == {
        "sum by (cluster, node) without cluster": "sum by (node) (a)",
        "sum by (cluster, node) without node": "sum by (cluster) (a)",
    }
    assert broken("a * on (c) group_left (d) b")["* group_left (d) without d"] == "a * on (c) group_left () b"


def test_what_waits_and_lasts_is_removed() -> None:
    found = mutants({"expr": "a", "for": "1m", "keep_firing_for": "2m"})
    assert [(each.what, sorted(each.rule)) for each in found] == [
        ("no for", ["expr", "keep_firing_for"]),
        ("no keep_firing_for", ["expr", "for"]),
    ]


def test_the_number_of_topk_stays() -> None:
    assert list(broken("topk by (c) (1, a)")) == ["topk by (c) without c"]


COPIED = {"run:a:b", "TrainA"}


def test_a_copy_of_a_rule_reads_copies_under_a_name_of_its_own() -> None:
    rule = {
        "alert": "TrainA",
        "expr": "run:a:b > on (x) run:c:d or rate(run:a:b[5m])",
        "annotations": {"summary": "S."},
    }
    assert copied_rule(rule, COPIED, 7) == {
        "alert": "M7_TrainA",
        "expr": "m7:run:a:b > on (x) run:c:d or rate(m7:run:a:b[5m])",
    }
    assert copied_rule({"record": "run:a:b", "expr": "a"}, COPIED, 3) == {"record": "m3:run:a:b", "expr": "a"}


def test_recordings_that_are_found_by_a_pattern_cannot_be_copied() -> None:
    with pytest.raises(ValueError, match="expected a name"):
        copied_rule({"record": "run:x:y", "expr": '{__name__=~"run:a:.+"}'}, COPIED, 1)


def test_a_test_expects_of_each_copy_what_it_expects_of_the_rule_and_nothing_of_others_beside_what_is_whole() -> None:
    test = {
        "input_series": [{"series": 'run:a:b{x="1"}', "values": "1x3"}, {"series": "up", "values": "1x3"}],
        "promql_expr_test": [
            {
                "expr": 'ALERTS{alertstate="firing",alertname=~"TrainA|TrainB"}',
                "eval_time": "1m",
                "exp_samples": [
                    {"labels": 'ALERTS{alertname="TrainA",run_id="r"}', "value": 1},
                    {"labels": 'ALERTS{alertname="TrainB",run_id="r"}', "value": 1},
                ],
            },
            {"expr": "run:a:b", "eval_time": "1m", "exp_samples": [{"labels": "run:a:b", "value": 1}]},
            {"expr": "run:c:d", "eval_time": "1m", "exp_samples": [{"value": 1}]},
        ],
        "alert_rule_test": [{"alertname": "TrainB", "eval_time": "1m"}],
    }
    whole = {"promql_expr_test": [{"expr": "count(ALERTS)", "eval_time": "1m"}], "alert_rule_test": []}
    copy = with_copies(test, whole, {4: COPIED})
    assert [each["series"] for each in copy["input_series"]] == ['run:a:b{x="1"}', "up", 'm4:run:a:b{x="1"}']
    assert copy["promql_expr_test"] == [
        {"expr": 'count(ALERTS{alertname!~"M[0-9]+_.+"})', "eval_time": "1m"},
        {
            "expr": 'ALERTS{alertname=~"M4_.+",alertstate="firing",alertname=~"M4_(?:TrainA|TrainB)"}',
            "eval_time": "1m",
            "exp_samples": [{"labels": 'ALERTS{alertname="M4_TrainA",run_id="r"}', "value": 1}],
        },
        {"expr": "m4:run:a:b", "eval_time": "1m", "exp_samples": [{"labels": "m4:run:a:b", "value": 1}]},
    ]
    assert copy["alert_rule_test"] == []


def test_the_copies_that_fail_are_read_from_what_promtool_prints() -> None:
    printed = (
        'expr: "ALERTS{alertname=~\\"M12_.+\\"}", time: 4m, got: nil\n rule: m3:run:a:b, time: 5s, err: many-to-many'
    )
    assert numbers_in(printed) == {3, 12}


def test_what_fails_although_it_is_whole_names_no_copy() -> None:
    printed = (
        '  FAILED:\n    expr: "ALERTS{alertname!~\\"M[0-9]+_.+\\"}", time: 4m,\n        exp: nil\n'
        '    expr: "m3:run:a:b", time: 4m,\n        exp: nil\n'
    )
    assert [numbers_in(each) for each in failures(printed)] == [set(), {3}]


REFUSED = [
    '/tmp/t/rules-0.yml: 6:11: group "a", rule 1, "m1:x:y": could not parse expression: 1:5: unclosed parenthesis',
    'expr: "m1:x:y +", time: 10s, err: 1:9: parse error: unexpected end of input',
]


def test_what_promtool_cannot_read_is_no_mutant_that_was_noticed() -> None:
    for refused in REFUSED:
        assert unreadable(f"  FAILED:\n    {refused}\n") == refused
    assert unreadable("  FAILED:\n    rule: m3:run:a:b, time: 5s, err: many-to-many\n") is None


def test_of_a_subquery_the_whole_window_is_changed_and_its_step_stays() -> None:
    broken = {each.what: each.rule["expr"] for each in mutants({"record": "b", "expr": "avg_over_time(a[6h:5m])"})}
    assert broken["window 6h times 4"] == "avg_over_time(a[86400000ms:5m])"
    assert broken["window 6h divided by 4"] == "avg_over_time(a[5400000ms:5m])"
