"""How files of torch's own end, by which their frames are told from others. Needs no torch."""

from __future__ import annotations

import os

OPERATORS = f"torch{os.sep}_ops.py"  # an operation is called through it
CHECKPOINT = "torch/utils/checkpoint.py"  # a part of forward is replayed in it
# They stand between a program and what it reads of a tensor.
TRANSPARENT = ("torch/_tensor.py", "torch/utils/_python_dispatch.py")
