"""A small local service around a saved twin: a page with a form, and a JSON interface.

`questions` turns what comes in into a table that the model can take, or into a clear message;
`answers` asks the model; `app` is what speaks HTTP. Nothing in a request names a file.
"""

from twinned.serve.app import make_app

__all__ = ["make_app"]
