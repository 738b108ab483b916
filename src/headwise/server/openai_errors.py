"""Errors in the form that OpenAI's clients read.

    {"error": {"message": "there is no model 'x' here", "type": "invalid_request_error", "param": "model",
               "code": "model_not_found"}}

| status  | type                  | examples                                                                     |
|---------|-----------------------|------------------------------------------------------------------------------|
| 400     | invalid_request_error | a parameter is unknown, out of range or not supported; the prompt is too long |
| 401     | authentication_error  | no API key, or a wrong one                                                   |
| 404     | invalid_request_error | no such model, no such address                                               |
| 429     | rate_limit_error      | too many requests wait; Retry-After says when to come again                  |
| 500     | server_error          | something went wrong; the server's log has the traceback                     |
| 503     | server_error          | the model is being loaded, or the server stops                               |
| 504     | timeout_error         | the answer took longer than the server allows                                |

All addresses under `/v1/` answer in this form, whether the guard, the router or the model refuses. All other addresses answer
`{"error": "..."}`.
"""

from __future__ import annotations

from typing import Any

from headwise.core.errors import HeadwiseError

__all__ = ["API_PREFIX", "CLIENT_GONE", "ApiError", "error_content"]

API_PREFIX = "/v1/"
CLIENT_GONE = 499  # nobody reads this status; logs and metrics count it
TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 504: "timeout_error"}


class ApiError(HeadwiseError):
    """A request to the API was refused, or failed (docs/errors/explorer.md)."""

    def __init__(self, text: str, status: int = 400, *, param: str | None = None, code: str | None = None):
        super().__init__(text)
        self.status, self.param, self.code = status, param, code

    @property
    def content(self) -> dict[str, Any]:
        """The body of the response."""
        return error_content(str(self), self.status, path=API_PREFIX, param=self.param, code=self.code)


def error_content(
    text: str, status: int, *, path: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The body of an error at an address.

    >>> error_content("there is nothing at this address", 404, path="/atlas/none")
    {'error': 'there is nothing at this address'}
    >>> error_content("send JSON", 415, path="/v1/completions")["error"]["type"]
    'invalid_request_error'
    """
    if not path.startswith(API_PREFIX):
        return {"error": text}
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": text, "type": kind, "param": param, "code": code}}
