"""Errors of object stores as Tidelake's own, with the object's URI, and without secrets."""

from __future__ import annotations

import re

from tidelake.errors import BucketMissing, StoreAccessDenied, StoreUnreachable, StoreUnreadable, WrongRegion

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
    """Return the error of a request that failed.

    Args:
        uri: the URI of the object or the folder.
        access: what the request was for: `read`, `write`, `list` or `delete`.
        error: the engine's error.

    >>> denied = OSError("403 Forbidden: <Error><Code>ExpiredToken</Code><Message>It expired.</Message></Error>")
    >>> store_error("s3://lake/catalog", "list", denied).fact
    'the object store does not let these credentials list s3://lake/catalog: ExpiredToken: It expired.'
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


def _code_of(text: str) -> str | None:
    match = _CODE.search(text)
    return None if match is None else match[1]


def _fact_of(text: str) -> str:
    """Return what a person needs of an engine's error: an answer may repeat the request, with its signature."""
    code, message = _code_of(text), _MESSAGE.search(text)
    if code is not None:
        return f"{code}: {message[1]}" if message is not None and message[1] else code
    fact = text.partition("\n\nDebug source")[0].partition("<?xml")[0]
    return " ".join(fact.split())
