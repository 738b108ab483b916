"""The explorer: atlases served to a browser, and a live page where a model is loaded. Needs the extra [web].

Import order: shelf, desk, guard; room, answers; live_routes, pages, downloads; app; running.
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
from headwise.server.running import address, bound, is_loopback, run

__all__ = ["address", "bound", "create_app", "is_loopback", "run"]
