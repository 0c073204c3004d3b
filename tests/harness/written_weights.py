"""Files as ``torch.save`` writes them, without what they would hold."""

import io
import zipfile


def saved(content: str) -> bytes:
    """A zip file."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("archive/data/0", content * 400)
    return written.getvalue()
