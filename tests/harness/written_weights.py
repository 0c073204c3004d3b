"""Files as ``torch.save`` writes them, without what they would hold."""

import io
import zipfile


def saved(content: str) -> bytes:
    """A zip file."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        # With a time of its own: the same content is the same bytes, whenever it is written.
        archive.writestr(zipfile.ZipInfo("archive/data/0"), content * 400)
    return written.getvalue()
