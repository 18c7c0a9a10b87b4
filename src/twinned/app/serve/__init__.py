"""Local HTTP service for a fitted twin: a web page with a form, and a JSON interface.

`models` parses and describes requests with pydantic, `service` computes predictions, concurrent
requests together, and `app` is the ASGI application and its server. A request never names a file.
"""

from twinned.app.serve.app import make_app

__all__ = ["make_app"]
