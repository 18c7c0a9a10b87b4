"""The README of the package index: links and pictures of the repository have its address."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE_LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?://|#)([^)\s]+)\)")


def absolute_links(text: str, repository: str, version: str) -> str:
    """The text with the address of a version of the repository before relative links."""

    def replace(match: re.Match[str]) -> str:
        kind = "raw" if match[1] else "blob"
        return f"{match[1]}{match[2]}({repository}/{kind}/v{version}/{match[3]})"

    return _RELATIVE_LINK.sub(replace, text)


class CustomMetadataHook(MetadataHookInterface):
    """`project.readme`, from README.md and the address in `project.urls`."""

    def update(self, metadata: dict) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = absolute_links(text, metadata["urls"]["Source"], metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
