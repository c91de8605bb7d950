"""The rules, one module each; the order is that of the report."""

from rlconform.check_run.rule import Rule
from rlconform.check_run.rules.accounting import Accounting
from rlconform.check_run.rules.after_end import NothingAfterEnd
from rlconform.check_run.rules.bias import DropsUnbiased
from rlconform.check_run.rules.completeness import LogComplete
from rlconform.check_run.rules.exactly_once import ExactlyOnce
from rlconform.check_run.rules.group_integrity import GroupIntegrity
from rlconform.check_run.rules.liveness import Liveness
from rlconform.check_run.rules.plane_ops import PlaneOperations
from rlconform.check_run.rules.resume import ResumeComplete
from rlconform.check_run.rules.reward import RewardOfItsSample
from rlconform.check_run.rules.staleness import StalenessWithinBound
from rlconform.check_run.rules.versions import VersionsTrue

ALL_RULES: tuple[type[Rule], ...] = (
    LogComplete,
    Accounting,
    ExactlyOnce,
    GroupIntegrity,
    StalenessWithinBound,
    VersionsTrue,
    RewardOfItsSample,
    NothingAfterEnd,
    ResumeComplete,
    Liveness,
    DropsUnbiased,
    PlaneOperations,
)

__all__ = ["ALL_RULES"]
