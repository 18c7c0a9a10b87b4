"""HTML report of `twinned advise`: collect, then render.

`collect` turns a diagnosis into numbers and texts, and `render` draws charts of them and writes one
HTML page.
"""
