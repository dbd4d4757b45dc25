"""The parts of an attack, and what is told of each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping

from tests.attacks import addresses, bodies, files, forms, parameters, replies, uploads
from tests.attacks.site import AttackedSite, Finding
from tests.evalsite.test_every_url import PAGES

# A part sends requests that chance picks, about this share of all it knows, and yields what the site did wrong.
Attack = Callable[[AttackedSite, random.Random, float], Iterator[Finding]]
PARTS: Mapping[str, Attack] = {
    "addresses": addresses.attack,
    "bodies": bodies.attack,
    "files": files.attack,
    "forms": forms.attack,
    "parameters": parameters.attack,
    "replies": replies.attack,
    "uploads": uploads.attack,
}


def run_part(
    name: str, site: AttackedSite, *, seed: str, share: float
) -> tuple[str, list[Finding]]:
    """Run one part; return what it sent, and its findings, of each kind one.

    What it sends depends on the seed alone, and not on the parts before.
    """
    site.start_counting()
    begun = time.process_time()
    findings: dict[str, Finding] = {}
    for finding in PARTS[name](site, random.Random(f"{seed}-{name}"), share):
        findings.setdefault(finding.what, finding)
    line = (
        f"{name:<10}  {site.requests:>6} requests  {len(site.reached):>3} of {len(PAGES)} addresses"
        f"  {time.process_time() - begun:>6.1f} s CPU  {len(findings)} findings"
    )
    for family, outcomes in site.outcomes.items():
        line += f"\n    {family}: {', '.join(f'{n} {outcome}' for outcome, n in outcomes.items())}"
    return line, [*findings.values()]
