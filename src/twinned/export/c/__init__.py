"""Export of fitted models as one self-contained C99 header."""

from twinned.export.c.export import CExport, to_c

__all__ = ["CExport", "to_c"]
