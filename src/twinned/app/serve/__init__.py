"""Local HTTP service for a fitted twin: a web page with a form, and a JSON interface.

`requests` parses and validates requests, `service` computes predictions, `batching` predicts
concurrent requests together, `openapi` describes the interface, and `app` is the ASGI application.
A request never names a file.
"""

from twinned.app.serve.app import make_app

__all__ = ["make_app"]
