"""`--json -`: the report stands alone on standard output, and what the program prints goes to standard error."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2


class Poured:
    """A report is written to `path`, by whichever process tells it, and poured out at the end."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="whynan-")) / "report.json"
        sys.stdout.flush()
        self._output = os.dup(STANDARD_OUTPUT)
        os.dup2(STANDARD_ERROR, STANDARD_OUTPUT)

    def out(self) -> None:
        """To standard output, which is itself again. Once."""
        if self._output < 0:
            return
        output, self._output = self._output, -1
        try:
            sys.stdout.flush()
        except Exception:  # closed or full: the program's own trouble
            pass
        try:
            os.dup2(output, STANDARD_OUTPUT)
            os.close(output)
            left = self.path.read_bytes() if self.path.exists() else b""
            while left:
                left = left[os.write(STANDARD_OUTPUT, left) :]
        finally:
            shutil.rmtree(self.path.parent, ignore_errors=True)
