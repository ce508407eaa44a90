import random
from pathlib import Path

import torch


def write_example(path: Path, rows: int = 150) -> None:
    rnd = random.Random(7)
    with path.open("w") as fh:
        fh.write("temp,ph,flow,yield\n")
        for i in range(rows):
            t, ph, flow = rnd.gauss(60, 5), rnd.gauss(7, 0.3), rnd.gauss(2, 0.2)
            y = 0.02 * t + 0.5 * ph - 0.7 * flow + rnd.gauss(0, 0.05)
            ph_text = "nan" if i == 83 else f"{ph:.3f}"
            fh.write(f"{t:.2f},{ph_text},{flow:.3f},{y:.4f}\n")


def read_table(path: Path):
    with path.open() as fh:
        header = fh.readline().strip().split(",")
        records = [[float(cell) for cell in line.split(",")] for line in fh if line.strip()]
    table = torch.tensor(records)
    return header, table[:, :-1], table[:, -1]
