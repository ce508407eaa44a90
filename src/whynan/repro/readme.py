"""`README.md` of a repro: what fails, the numbers and the versions, for an issue of another project."""

from __future__ import annotations

import platform

import torch

from whynan.model import Material, dotted, number
from whynan.repro.case import Case, Shown, Wide, kinds_in
from whynan.repro.script import Script
from whynan.repro.values import Values
from whynan.seam.packing import named
from whynan.version import __version__

SAID = {"nan": "NaN", "inf": "inf", "-inf": "-inf"}


def headline(case: Case, shown: Shown, call: str) -> str:
    """In one sentence, true by itself."""
    operands = [case.tensors[i] for i in case.inputs]
    finite = "finite operands" if not any(kinds_in(t) for t in operands) else "these operands"
    if shown.kind == "raised":
        return f"`{call}` raises {shown.message.split(':')[0]} with {finite}"
    what = "the gradient of " if case.backward else ""
    verb = "is" if case.backward else "gives"
    return f"{what}`{call}` {verb} {SAID[shown.kind]} with {finite}"


def write(
    values: Values, script: Script, material: Material, shown: Shown, wide: Wide, said: str
) -> str:
    """The page."""
    case = values.case
    parts = [
        f"# {said[0].upper() if said[0] != '`' else '`'}{said[1:]}",
        "",
        "```",
        "python repro.py",
        "```",
        "",
        _ending(case, shown),
        "",
        "| tensor | type | shape | smallest | largest | in the program |",
        "|---|---|---|---|---|---|",
        *[_row(values, script, material, i) for i in [*case.inputs, *case.incoming.values()]],
        "",
        *_numbers(case, shown, wide),
        "",
        "## Versions",
        "",
        *[f"* {name}: {value}" for name, value in _versions(case, material).items()],
        "",
        "## Values",
        "",
        _about_values(values, script),
        "",
        f"Made by whynan {__version__}, which has run `repro.py` in a fresh process and seen it fail.",
    ]
    return "\n".join(parts) + "\n"


def _ending(case: Case, shown: Shown) -> str:
    if shown.kind == "raised":
        return f"ends with `{shown.message.split(':')[0]}`."
    what = "gradient" if case.backward else "result"
    return f"prints the {what} and ends with `AssertionError: the {what} is not finite`."


def _row(values: Values, script: Script, material: Material, i: int) -> str:
    tensor = values.case.tensors[i]
    real = tensor.double() if not tensor.is_complex() else torch.view_as_real(tensor).double()
    ends = [number(float(real.min())), number(float(real.max()))] if real.numel() else ["", ""]
    before = material.full_shapes[i] if i < len(material.full_shapes) else tuple(tensor.shape)
    cells = [f"`{script.names[i]}`", named(tensor.dtype), dotted(tuple(tensor.shape)), *ends, dotted(before)]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _numbers(case: Case, shown: Shown, wide: Wide) -> list[str]:
    if shown.value is None:
        return []
    value = shown.value.detach()
    bad = int((~torch.isfinite(value if value.element_size() > 1 else value.float())).sum())
    what = "gradient" if case.backward else "result"
    lines = [f"{bad:,} of {value.numel():,} values of the {what} are not finite."]
    if wide == "finite":
        lines += [f"In float64 the same operation is finite: the numbers fit, {named(value.dtype)} is too narrow for them, or the kernel is at fault."]  # fmt: skip
    elif wide == "bad" and value.dtype is not torch.float64:
        lines += ["In float64 it is not finite either: this is what the operation means at these operands."]  # fmt: skip
    return lines


def _versions(case: Case, material: Material) -> dict[str, str]:
    seen = dict(material.versions)
    found = {
        "torch": torch.__version__,
        "Python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": case.device if case.device == "cpu" else seen.get("device", case.device),
        "threads": str(torch.get_num_threads()),
    }
    if seen.get("torch", found["torch"]) != found["torch"]:
        found["seen first with torch"] = seen["torch"]
    if seen.get("device", "cpu") != "cpu":
        found["seen first on"] = seen["device"]
    return found


def _about_values(values: Values, script: Script) -> str:
    kept = [f"`{script.names[i]}`" for i in values.kept]
    if not kept:
        return (
            "None of the program's values are in it: they were replaced by others that fail alike."
        )
    return f"{', '.join(kept)}: values of the program itself, without which it does not fail or which were to be kept."
