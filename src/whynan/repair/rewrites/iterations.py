"""Products that a loop carries from step to step (HMM, Sinkhorn): their logarithms are carried instead.

Only where the whole form is seen: what the loop multiplies, divides and sums, where it begins, and
every place that reads it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from whynan.repair.calls import fn
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.carried import Carried, carried_by
from whynan.repair.rewrites.log_products import LogProduct, Unknown
from whynan.repair.source import Expression, Source

MECHANISMS = frozenset(
    {"log_nonpositive", "division_by_zero", "gradient_singularity", "overflow", "zero_times_inf",
     "inf_over_inf", "inf_minus_inf"}
)  # fmt: skip
TITLE = (
    "carry the logarithms from step to step: the products themselves leave the range of the type"
)


def propose(case: Case) -> Iterator[Candidate]:
    source, node = case.source, case.node
    if source is None or node is None or case.mechanism not in MECHANISMS:
        return
    scope = source.scope(node)
    for loop in source.every(cst.For, None if scope is source.module else scope):
        carried = carried_by(source, loop)
        if carried is None or source.scope(loop) is not scope:
            continue
        try:
            rewrite = Rewrite(case, source, carried)
            edit = rewrite.made()
        except Unknown:
            continue
        if node in rewrite.touched and not edit.is_nested():
            yield from case.change(edit, "log_domain", TITLE, Tier.EXACT)
            return


@dataclass
class Rewrite:
    """One loop and the function around it."""

    case: Case
    source: Source
    carried: Carried
    touched: set[cst.CSTNode] = field(default_factory=set)

    def made(self) -> Edit:
        edit = Edit(self.source)
        product = LogProduct(self.case, self.source, self.carried)
        for name in self.carried.names:
            for line, target, value, operator in self.carried.given[name]:
                text = product.of(value)
                if operator is not None:
                    text = f"{product.named(name)} {operator} {text}"
                    edit.before(line, f"{product.named(name)} = {text}").remove(line)
                else:
                    edit.replace(target, product.named(name)).replace(value, text)
                self._touch(line)
        for read in self.carried.reads_outside():
            if read not in self.touched:
                self._leave(edit, product, read)
        for where, text in product.hoisted_lines():
            edit.before(where, text)
        return edit.inline(product.inlined)

    def _leave(self, edit: Edit, product: LogProduct, read: cst.Name) -> None:
        """Where the product itself, or its logarithm, is asked for."""
        top: Expression = read
        text = product.of(read)
        for above in self.source.ancestors(read):
            if isinstance(above, cst.SimpleStatementLine):
                break
            if not isinstance(above, Expression):
                continue
            log = fn(self.source, above)
            if log is not None and log.name == "log" and not log.rest:
                edit.replace(above, product.of(log.operand))
                self._touch(above)
                return
            try:
                text, top = product.of(above, closed=True), above
            except Unknown:
                continue  # `u[:, None]` is an expression, its slice is one, too
        edit.replace(top, f"torch.exp({text})")
        self._touch(top)

    def _touch(self, node: cst.CSTNode) -> None:
        self.touched |= {node, *self.source.below(node)}
