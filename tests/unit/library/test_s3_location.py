"""Where in S3 records go, as users write it."""

import pytest

from tests.cases import cases
from trainwarden.clients.s3_location import InvalidLocation, S3Location, parse_s3_url, records_location


@cases(
    ("url", "expected"),
    [
        ("s3://bucket", S3Location("bucket")),
        ("s3://bucket/", S3Location("bucket")),
        ("s3://my.bucket-1/a/b/", S3Location("my.bucket-1", "a/b")),
        ("s3://bucket/a?b#c%20 d/ü", S3Location("bucket", "a?b#c%20 d/ü")),
    ],
)
def test_a_url_names_bucket_and_prefix_letter_by_letter(url: str, expected: S3Location) -> None:
    assert parse_s3_url(url) == expected


@cases(
    "url",
    [
        "",
        "bucket/prefix",
        "https://bucket.s3.amazonaws.com/x",
        "s3:/bucket",
        "s3://",
        "s3:///prefix",
        "s3://b/x",
        "s3://a b/x",
        "s3://a..b/x",
        "s3://-bucket/x",
        "s3://bucket:9000/x",
        "s3://bucket/a\nb",
        "s3://bucket/\ud800",
        "s3://bucket/" + "ü" * 400,
        7,
    ],
)
def test_what_names_no_place_is_refused_with_the_name_of_the_setting(url: object) -> None:
    with pytest.raises(InvalidLocation, match=r"^THE_SETTING="):
        parse_s3_url(url, source="THE_SETTING")


def test_a_secret_in_a_url_is_not_repeated() -> None:
    with pytest.raises(InvalidLocation) as raised:
        parse_s3_url("s3://AKIA:topsecret@bucket/x")
    assert "topsecret" not in str(raised.value) and "bucket/x" in str(raised.value)


def test_what_was_given_comes_before_the_url_and_that_before_the_bucket_of_a_monitor() -> None:
    environ = {"MONITORING_BUCKET": "seen", "MONITORING_REGION": "eu-north-1"}
    assert records_location(None, {}) is None
    assert records_location(None, environ) == S3Location("seen", "training-runs", "eu-north-1")
    environ["TRAINWARDEN_S3_URL"] = "s3://ours/x"
    assert records_location("", environ) == S3Location("ours", "x", "eu-north-1")
    assert records_location("s3://given/y", environ) == S3Location("given", "y", "eu-north-1")


@cases(
    ("name", "value"),
    [("TRAINWARDEN_S3_URL", "ours/x"), ("MONITORING_BUCKET", "s3://ours"), ("MONITORING_BUCKET", "a b")],
)
def test_a_wrong_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidLocation, match=f"^{name}="):
        records_location(None, {name: value})


def test_a_record_is_below_its_place() -> None:
    assert str(S3Location("b-1", "a").below("r")) == "s3://b-1/a/r"
    assert (S3Location("b-1").below("r").prefix, S3Location("b-1").key("x"), str(S3Location("b-1"))) == (
        "r",
        "x",
        "s3://b-1",
    )
