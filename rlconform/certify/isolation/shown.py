"""``Shown``: the requirements of which a trial of a mutant has shown enough.

    runner        notes the results that it receives, and leaves out the checks of what is shown
    test process  notes the results that it sends, and goes on with the checks of what is not

Each failed check of a mutant says the same once more, so the self-test's gate needs only one of
them. A certification needs them all: it never says what would be enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlconform.certify.results import BROKEN, CheckResult

#: ``PlannedCheck.left_out`` of a check whose requirement needs no more of them.
SHOWN = "another check has shown enough"


@dataclass
class Shown:
    """The requirements of which enough is shown.

    ``enough`` maps requirements to a part of the text of the failure that is enough; "" is in any.
    """

    enough: Mapping[str, str]
    requirements: set[str] = field(default_factory=set)

    def note(self, result: CheckResult, capabilities: Mapping[str, bool | str]) -> bool:
        """Note a check's result; return whether it is the one that is enough.

        A check of a capability that the target does not declare is only a probe: it shows nothing.
        """
        wanted = self.enough.get(result.requirement)
        if wanted is None or result.requirement in self.requirements:
            return False
        probe = result.capability and capabilities.get(result.capability) is not True
        if probe or result.outcome not in BROKEN or wanted not in result.evidence:
            return False
        self.requirements.add(result.requirement)
        return True
