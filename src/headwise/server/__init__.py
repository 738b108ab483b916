"""The explorer: a web server for atlases, with a live page where a model is loaded. Needs the extra [web].

Import order: registry, model_host, guard; responses; live_routes; app; serving.
"""

from headwise.core.errors import ModelError

try:
    import fastapi  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as error:
    raise ModelError(
        f'headwise serve needs {error.name}, which is not installed; install it with: pip install "headwise[web]"'
    ) from error

from headwise.server.app import create_app
from headwise.server.serving import bind_socket, is_loopback, run, url_of

__all__ = ["bind_socket", "create_app", "is_loopback", "run", "url_of"]
