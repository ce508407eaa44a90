"""Running statistics whose slots say NaN until they are measured, and are shown as they are."""
import torch

torch.manual_seed(6)
slots = {name: torch.tensor(float("nan")) for name in ("warm", "cold", "spare")}
for name in ("warm", "cold"):
    readings = torch.randn(20) + (3.0 if name == "warm" else -3.0)
    slots[name] = readings.mean()
print({name: round(value.item(), 3) for name, value in slots.items()})
print("spare is", slots["spare"])
