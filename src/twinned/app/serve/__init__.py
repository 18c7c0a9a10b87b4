"""Local HTTP service for a fitted twin: a web page with a form, and a JSON interface.

`requests` describes what a row must have, and makes tables of rows of JSON, as those that the
commands read from files; `service` computes predictions, and `app` is the ASGI application and its
server. A request never names a file.
"""

from twinned.app.serve.app import make_app

__all__ = ["make_app"]
