"""The explorer: a web server for atlases, with a live page and OpenAI's API where a model is loaded. Needs the extra [web].

Import order: registry, model_host, openai_errors, guard; responses; live_routes; batching; openai_requests, openai_responses;
api_key, api_model, api_metrics; openai_routes; app; serving.
"""

from headwise.core.errors import ModelError

try:
    import fastapi  # noqa: F401
    import prometheus_client  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as error:
    raise ModelError(
        f'headwise serve needs {error.name}, which is not installed; install it with: pip install "headwise[web]"'
    ) from error

from headwise.server.api_key import ApiKey, read_api_key
from headwise.server.api_model import ApiLimits, ApiModel
from headwise.server.app import create_app
from headwise.server.openai_routes import ApiSettings
from headwise.server.serving import bind_socket, is_loopback, run, url_of

__all__ = [
    "ApiKey", "ApiLimits", "ApiModel", "ApiSettings", "bind_socket", "create_app", "is_loopback", "read_api_key", "run",
    "url_of",
]  # fmt: skip
