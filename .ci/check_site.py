"""Check the links of the built documentation: files, anchors and pictures. Standard library only.

python .ci/check_site.py site
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The anchors of a page, and its links to other pages of the site."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links = {""}, []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors.update({values.get("id"), values.get("name")} - {None})
        if (link := values.get("href") or values.get("src")) and tag != "link":
            self.links.append(link)


def main():
    site = Path(sys.argv[1]).resolve()
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    broken = []
    n_links = 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            n_links += 1
            folder = site if parts.path.startswith("/") else path.parent
            target = (folder / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            anchor = unquote(parts.fragment)
            is_known = target.is_file() and (
                target not in pages or anchor in pages[target].anchors or anchor == "__skip"
            )
            if not is_known and path.name != "404.html":
                broken.append(f"{path.relative_to(site)}: {link}")
    if broken:
        raise SystemExit("\n".join([f"{len(broken)} broken links:", *broken]))
    print(f"{n_links:,} links of {len(pages)} pages lead to a page, an anchor or a file.")


if __name__ == "__main__":
    main()
