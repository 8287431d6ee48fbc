"""Converts errors of object stores to Tidelake's own, with the object's URI, and without secrets."""

from __future__ import annotations

import re

from tidelake.errors import BucketMissing, StoreAccessDenied, StoreUnreachable, StoreUnreadable, WrongRegion
from tidelake.spark.engine_errors import engine_fact, is_of_object_store

_CODE = re.compile(r"<Code>([A-Za-z0-9]+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_DENIED = frozenset(
    {
        *("AccessDenied", "AccountProblem", "AllAccessDisabled", "AuthorizationQueryParametersError", "ExpiredToken"),
        *("InvalidAccessKeyId", "InvalidSecurity", "InvalidToken", "RequestTimeTooSkewed", "SignatureDoesNotMatch"),
        *("TokenRefreshRequired", "UnauthorizedAccess"),
    }
)
_ELSEWHERE = frozenset(
    {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect", "TemporaryRedirect"}
)
_DENIED_WORDS = ("401 Unauthorized", "403 Forbidden", "lacked permission", "lacked valid authentication")
_ELSEWHERE_WORDS = ("redirect without LOCATION", "301 Moved Permanently")
_NO_CREDENTIALS = ("Error getting credentials", "The credential provider was not enabled", "instance metadata")


def is_bucket_missing(error: BaseException) -> bool:
    """Return whether a request found no bucket, not merely no object.

    >>> is_bucket_missing(FileNotFoundError("404 Not Found: <Error><Code>NoSuchBucket</Code></Error>"))
    True
    """
    return _code_of(str(error)) == "NoSuchBucket"


def store_error(uri: str, access: str, error: BaseException) -> StoreUnreadable:
    r"""Return the error for a request that failed.

    Args:
        uri: the URI of the object or the folder.
        access: what the request was for: `read`, `write`, `list` or `delete`.
        error: the engine's error.

    >>> denied = OSError("403 Forbidden: <Error><Code>ExpiredToken</Code><Message>It expired.</Message></Error>")
    >>> store_error("s3://lake/catalog", "list", denied).fact
    'these credentials are not allowed to list s3://lake/catalog: ExpiredToken: It expired.'
    >>> store_error("s3://lake/t", "read", OSError("Generic S3 error\n  \x1b[31m↳\x1b[0m connection refused")).fact
    'the object store does not serve s3://lake/t: Generic S3 error: connection refused'
    """
    text = str(error)
    code, fact = _code_of(text), _fact_of(text) or type(error).__name__
    if code == "NoSuchBucket":
        return BucketMissing(fact, uri)
    if code in _ELSEWHERE or any(words in text for words in _ELSEWHERE_WORDS):
        return WrongRegion(fact, uri)
    if code in _DENIED or any(words in text for words in (*_DENIED_WORDS, *_NO_CREDENTIALS)):
        return StoreAccessDenied(fact, uri, access)
    return StoreUnreachable(fact, uri)


def spark_error(text: str) -> StoreUnreadable | None:
    """Return the error for a request by Spark that an object store refused or did not answer; else None.

    >>> denied = "java.nio.file.AccessDeniedException: s3://lake/a.parquet: listObjects() on s3://lake/a.parquet: "
    >>> denied += "software.amazon.awssdk.services.s3.model.S3Exception: sorry (Service: S3, Status Code: 403, X: y):"
    >>> spark_error(denied + "AccessDenied").fact
    'these credentials are not allowed to list s3://lake/a.parquet: AccessDenied: sorry'
    >>> spark_error("java.io.FileNotFoundException: s3://lake/a.parquet")
    """
    if not is_of_object_store(OSError(text)):
        return None
    uris, answer, action = _URI.search(text), _ANSWER.search(text), _ACTION.search(text)
    uri = "the object store" if uris is None else uris[0].rstrip(":`'.")
    if answer is None:
        failure = _FAILURE.search(text)
        detail = engine_fact(OSError(text)) if failure is None else failure[0].strip()
        error = OSError(f"403 Forbidden: {detail}") if _NO_SPARK_CREDENTIALS in text else OSError(detail)
        return store_error(uri, "read", error)
    message, status = answer["message"].strip(), int(answer["status"])
    if answer["code"] == "NoSuchKey":
        return None
    code = _BY_STATUS.get(status, "") if answer["code"] in (None, "null") else answer["code"]
    access = next((access for word, access in _ACTIONS.items() if action and word in action[1].lower()), "read")
    return store_error(uri, access, OSError(f"<Code>{code or status}</Code><Message>{message}</Message>"))


_URI = re.compile(r"\bs3a?://[^\s,;'\"()<>`]+")
_ANSWER = re.compile(
    r"Exception: (?P<message>(?:(?!Exception: )[^\n])*?)\(Service: S3, Status Code: (?P<status>\d+)[^)]*\)"
    r"(?: ?\([^)]*\))?(?::(?P<code>\w+))?"
)
_ACTION = re.compile(r"s3a?://\S+: ([A-Za-z() ]+?) on s3a?://")
_FAILURE = re.compile(r"(?:java\.net\.\w+|software\.amazon\.awssdk\.[\w.]+)Exception: [^\n]*")
_NO_SPARK_CREDENTIALS = "NoAuthWithAWSException"
_ACTIONS = {"list": "list", "put": "write", "writ": "write", "upload": "write", "delete": "delete"}
_BY_STATUS = {301: "PermanentRedirect", 400: "AccessDenied", 401: "AccessDenied", 403: "AccessDenied"}
"""The meaning of a status if the response has no code, as with HEAD; expired credentials then give a bad request."""


def _code_of(text: str) -> str | None:
    match = _CODE.search(text)
    return None if match is None else match[1]


def _fact_of(text: str) -> str:
    """Return the readable part of an engine's error; the rest may repeat the request, with its signature."""
    code, message = _code_of(text), _MESSAGE.search(text)
    if code is not None:
        return f"{code}: {message[1]}" if message is not None and message[1] else code
    fact = text.partition("\n\nDebug source")[0].partition("<?xml")[0]
    return " ".join(engine_fact(OSError(fact)).split()) if fact.strip() else ""
