"""What an error of a bucket or web server means: may it pass, what is it, what to do.

fsspec gives each library's own errors on: those of aiohttp, botocore and the like, which are not
imported here; they are told by their HTTP status, by the code of S3, or by their names.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, TypeVar

Kind = Literal["passing", "missing", "refused", "changed", "other"]

_Result = TypeVar("_Result")

_PASSING_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_PASSING_CODES = frozenset({"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable"})
_REFUSED_STATUSES = frozenset({401, 403, 407})
_CHANGED_STATUSES = frozenset({412, 416})

_PASSING_NAMES = frozenset(
    {
        "TimeoutError",  # Of asyncio and concurrent.futures: Python 3.10 has three.
        "ClientConnectionError",  # aiohttp: the connection was refused or lost.
        "ClientPayloadError",  # aiohttp: the answer was cut.
        "HTTPClientError",  # botocore: both of that.
        "IncompleteReadError",
        "ResponseParserError",  # botocore: half of an answer, or a proxy's page.
        "HTTPException",  # http.client.
        "EOFError",
    }
)
"""Errors without a status that are about the way to a server. OSError counts as well."""

_REMEDIES: dict[Kind, str] = {
    "passing": "See whether the server is well and can be reached from here, then try again.",
    "missing": "See that the URL is right.",
    "refused": "The key may be wrong or expired, or not allowed there. Keys come from "
    "storage_options, or from where the provider's own tools take them (for S3: AWS_PROFILE, "
    "AWS_ACCESS_KEY_ID, AWS_SESSION_TOKEN, ~/.aws).",
    "changed": "It was replaced after it was opened; open the store again.",
    "other": "See that the URL and the storage_options are right.",
}


_ERRNOS: dict[Kind, int] = {
    "passing": errno.EREMOTEIO,  # One of those that are tried again.
    "missing": errno.ENOENT,
    "refused": errno.EACCES,
    "changed": errno.EINVAL,
    "other": errno.EINVAL,
}


class ChangedError(Exception):
    """A file is another than the one that was found at first."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"it is {found or 'another'} now, and was {expected}")


class Failure(NamedTuple):
    """What an error means.

    Attributes:
        kind: "passing" may be gone when it is tried again.
        text: What was found, in the server's words.
        status: Of HTTP, where there is one.
    """

    kind: Kind
    text: str
    status: int | None = None

    @property
    def remedy(self) -> str:
        """What to do now."""
        return _REMEDIES[self.kind]


class RemoteFaultError(OSError):
    """What a remote file system raised, as an error of a disk would be.

    Attributes:
        failure: What it means.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(_ERRNOS[failure.kind], failure.text)
        self.failure = failure


def asked(call: Callable[[], _Result]) -> _Result:
    """What a call of a remote file system gives.

    Raises:
        RemoteFaultError: Whatever it raised.
    """
    try:
        return call()
    except RemoteFaultError:
        raise
    except Exception as error:  # Each library has its own.
        raise RemoteFaultError(failure_of(error)) from error


def failure_of(error: BaseException) -> Failure:
    """What an error of a remote file system means."""
    status, code, text = (None, "", _text(error)) if _is_of_the_way(error) else _answer(error)
    kind = _kind(error, status, code)
    if kind == "missing" and status is None:
        return Failure(kind, "there is no such file")
    words = [str(status) if status else type(error).__name__]
    if code and code != str(status):
        words.append(code)
    return Failure(kind, f"{' '.join(words)}: {text}" if text else " ".join(words), status)


def _kind(error: BaseException, status: int | None, code: str) -> Kind:
    is_about_token = "Token" in code or "Credential" in type(error).__name__
    # The type first: S3 answers an expired token with 400.
    if isinstance(error, PermissionError) or status in _REFUSED_STATUSES or is_about_token:
        return "refused"
    if status in _PASSING_STATUSES or code in _PASSING_CODES:
        return "passing"
    if status in _CHANGED_STATUSES or isinstance(error, ChangedError):
        return "changed"
    if status is None:
        if isinstance(error, FileNotFoundError):
            return "missing"
        return "passing" if isinstance(error, OSError) or _is_of_the_way(error) else "other"
    return "missing" if status == 404 or isinstance(error, FileNotFoundError) else "other"


def _is_of_the_way(error: BaseException) -> bool:
    """Whether it is about the way to a server. aiohttp gives a cut answer the status 400."""
    return any(kind.__name__ in _PASSING_NAMES for kind in type(error).__mro__)


def _answer(error: BaseException) -> tuple[int | None, str, str]:
    """Status, code and text of the answer that an error or its cause tells of."""
    for cause in _causes(error):
        response = getattr(cause, "response", None)
        if isinstance(response, dict) and isinstance(response.get("Error"), dict):  # botocore
            said = response["Error"]
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return status, str(said.get("Code", "")), str(said.get("Message", "")).rstrip(".")
        for name in ("status", "code"):  # aiohttp, gcsfs
            status = getattr(cause, name, None)
            if isinstance(status, int) and 400 <= status < 600:
                return status, "", str(getattr(cause, "message", "") or "")
    return None, "", _text(error)


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__


def _text(error: BaseException) -> str:
    """An error's own words, without its number."""
    text = getattr(error, "strerror", None) or str(error)
    return str(text).strip().rstrip(".")
