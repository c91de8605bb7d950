"""``ScatteringClient``: one client whose calls are made in different processes.

    check ── call ──▶ ScatteringClient ── the policy picks a process ──▶ the owner's client
                                                                   ├──▶ actor1's attached client
                                                                   └──▶ actor2's attached client

A check written for one process then tests what several processes do together: one puts rows, and
another tags, claims, reads or clears them. Metas travel pickled, as between a driver and its
workers. A backend that caches, orders or counts for each process fails checks that it passes when
one process makes all calls.
"""

from __future__ import annotations

import random
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlconform.certify.recording.recorder import Recording
from rlconform.certify.recording.recording_client import RecordingClient
from rlconform.contract import CLIENT_METHODS, DataPlaneClient
from rlconform.wire.serialization import dumps, loads

#: Processes that make the calls: the owner's, and this many with attached clients.
ATTACHED = 2
#: How the names of policies call them.
NAMES = ("the owner", "actor1", "actor2")


@dataclass(frozen=True)
class Policy:
    """Which process makes which call.

    Attributes:
        name: Which role runs in another process, for the report.
        places: The process of each kind of call: 0 is the owner's, 1 and 2 are attached. Kinds that
            are not named run in process 0. None: a random process for each call.
        late: A process that attaches anew before its first call, like a worker that joins late.
        calls_per_attach: About one of so many calls of an attached process is made by a client that
            attaches anew, unless another call of the process still runs. None: no call.
        refused: Whether processes make calls that the plane refuses between those of the check.
    """

    name: str
    places: Mapping[str, int] | None = field(default_factory=dict)
    late: int | None = None
    calls_per_attach: int | None = None
    refused: bool = False

    def with_refused(self) -> Policy:
        """Return the policy with refused calls in between."""
        return replace(self, name=f"{self.name}, with refused calls in between", refused=True)


#: Kinds of calls, as ``Policy.places`` names them: those that only look, and those that change.
LOOKS, CHANGES = ("get", "claim", "status"), ("register", "put", "tag", "clear")


def _roles() -> list[Policy]:
    """One kind of call is made in a process of its own."""
    apart = {
        "the writer": {"put": 1, "tag": 1},
        "the reader": {"get": 1},
        "the tagger": {"put": 1, "tag": 2},
        "the claimer": {"claim": 1, "get": 2},
        "the clearer": {"clear": 1, "put": 2},
        "the registering process": {"register": 1, "put": 2},
        "the reader of the status": {"status": 1, "claim": 2},
    }
    at_once = [Policy(f"{who} apart", places) for who, places in apart.items()]
    late = [Policy(f"{who} apart, attached late", places, 1) for who, places in apart.items()]
    return [each for pair in zip(at_once, late, strict=True) for each in pair]


def looks_apart(changes: int, looks: int) -> Mapping[str, int]:
    """Return the processes of calls if one process makes all changes, and another only looks.

    A process that makes a change itself hears of it anyway; what a plane keeps for a process goes
    stale in one that only looks.
    """
    return dict.fromkeys(CHANGES, changes) | dict.fromkeys(LOOKS, looks)


def _looks_apart() -> list[Policy]:
    """The looks or, if the owner looks, the changes are also made by a process that joins late."""
    policies = []
    for changes, looks in ((1, 0), (0, 1), (1, 2)):
        places = looks_apart(changes, looks)
        who = f"all changes by {NAMES[changes]}, all looks by {NAMES[looks]}"
        policies += [Policy(who, places), Policy(f"{who}, attached late", places, looks or changes)]
    return policies


#: Every policy; a check runs under one of them, which its id and the seed decide.
POLICIES: Sequence[Policy] = [
    *_roles(),
    *_looks_apart() * 2,
    *[Policy("every call by a random process", None)] * 4,
]
#: The policy of checks that make many random calls, one at a time.
RENEWING = Policy("calls by random processes, which may attach anew", None, calls_per_attach=50)

#: One check out of this many has refused calls between its calls.
WITH_REFUSED = 3

#: How often the processes of ``random_policy`` attach anew: like workers that stay, and that don't.
CALLS_PER_ATTACH = (50, 50, 12)


def policy_of(check: str, seed: int, roles: bool = True) -> Policy:
    """Return the policy of a check; it depends on the check's id and the seed.

    Without ``roles`` it is ``RENEWING``; with them, a process may make all calls of a kind. One
    check out of ``WITH_REFUSED`` has refused calls.
    """
    number = zlib.crc32(check.encode()) + seed
    policy = POLICIES[number % len(POLICIES)] if roles else RENEWING
    return policy.with_refused() if number // len(POLICIES) % WITH_REFUSED == 0 else policy


def random_policy(rng: random.Random) -> Policy:
    """Return ``RENEWING``, a random process for each kind of call, or one that only looks.

    Processes attach anew in each. What a process remembers of its own calls shows only if it makes
    the next call of that kind too; what it misses of another's changes, if it only looks.
    """
    renewing = replace(RENEWING, calls_per_attach=rng.choice(CALLS_PER_ATTACH))
    if rng.randrange(WITH_REFUSED) == 0:
        renewing = renewing.with_refused()
    layout = rng.choice(("every call", "each kind", "looks apart"))
    if layout == "every call":
        return renewing
    if layout == "each kind":
        places = {kind: rng.randrange(1 + ATTACHED) for kind in (*CHANGES, *LOOKS)}
    else:
        places = dict(looks_apart(*rng.sample(range(1 + ATTACHED), 2)))
    return replace(renewing, places=places, late=rng.choice((None, 1, 2)))


def kind_of(method: str, kwargs: Mapping[str, Any]) -> str:
    """Return the kind of a call, as ``Policy.places`` names it."""
    if method == "put_samples":
        return "tag" if kwargs.get("fields") is None else "put"
    return {
        "register_partition": "register",
        "get_samples": "get",
        "get_data": "get",
        "claim_meta": "claim",
        "check_consumption_status": "status",
        "clear_samples": "clear",
        "close": "close",
    }[method]


class PicklingClient:
    """The owner's client, whose metas are pickled copies, as another process would get them."""

    def __init__(self, client: DataPlaneClient) -> None:
        for method in CLIENT_METHODS:
            setattr(self, method, self._pickling(getattr(client, method)))

    def _pickling(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def pickling(*args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            return loads(dumps(result)[0]) if hasattr(result, "sample_ids") else result

        return pickling


class ScatteringClient:
    """A client with the eight methods, whose calls are made in the processes that the policy picks.

    ``clear_samples(None)`` clears what the calling process has put, so every process that has put
    rows calls it.

    Args:
        clients: The owner's client and those of ``ATTACHED`` processes, recorded.
        policy: Which process makes which call.
        seed: The seed of a policy that picks processes at random.
        attach_again: Called with a process's number to close its client and attach a new one.
        refuse: Called with a process's number to let it make a call that the plane refuses.
    """

    is_remote = True  # a call may have to travel to another process

    def __init__(
        self,
        clients: Sequence[RecordingClient],
        policy: Policy,
        seed: int,
        attach_again: Callable[[int], None],
        refuse: Callable[[int], None] = lambda _place: None,
    ) -> None:
        self._refuse = refuse
        self._clients, self._policy, self._attach_again = clients, policy, attach_again
        self._late = policy.late
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._running: Counter[int] = Counter()  # calls by place
        self._writers: set[int] = set()  # places that have put rows
        self._last = threading.local()  # client: of this thread's last call
        for method in CLIENT_METHODS:
            setattr(self, method, self._scattered(method))

    @property
    def clients(self) -> Sequence[RecordingClient]:
        """The client of each process, by its number."""
        return self._clients

    def follow(self, policy: Policy) -> None:
        """Let this policy pick the processes of the next calls."""
        self._policy, self._late = policy, policy.late

    def reseed(self, seed: str) -> None:
        """Let this seed decide the processes of the next calls, whatever was called before."""
        self._random.seed(seed)

    @property
    def recording(self) -> Recording:
        """The recording of the calls of all processes."""
        return self._clients[0].recording

    @property
    def last_end(self) -> float:
        """When this thread's last call ended in the process that made it, in seconds."""
        last: RecordingClient = self._last.client
        return last.last_end

    @property
    def last_place(self) -> int:
        """The number of the process that made this thread's last call."""
        return self._clients.index(self._last.client)

    def _scattered(self, method: str) -> Callable[..., Any]:
        def scattered(*args: Any, **kwargs: Any) -> Any:
            if method == "clear_samples" and kwargs.get("sample_ids", args[:1] or "") is None:
                return self._by_each_writer(method, args, kwargs)
            place = self._begin_call(kind := kind_of(method, kwargs))
            if method == "put_samples":
                self._writers.add(place)
            self._last.client = self._clients[place]
            try:
                result = getattr(self._last.client, method)(*args, **kwargs)
                if kind not in ("claim", "close") and self._refuses_next():
                    self._refuse(place)
                return result
            finally:
                self._end_call(place)

        return scattered

    def refuse_in_each(self) -> None:
        """Let each process make a refused call, if the policy has such calls."""
        for place in range(len(self._clients) if self._policy.refused else 0):
            self._refuse(place)

    def _refuses_next(self) -> bool:
        """Whether a refused call follows: after every second call, if the policy has such calls."""
        if not self._policy.refused:
            return False
        with self._lock:
            return self._random.randrange(2) == 0

    def _by_each_writer(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for place in sorted(self._writers) or [0]:
            self._last.client = self._clients[place]
            getattr(self._last.client, method)(*args, **kwargs)

    def _begin_call(self, kind: str) -> int:
        """Return the number of the process for a call; attach it first if the policy says so."""
        places, one_of = self._policy.places, self._policy.calls_per_attach
        with self._lock:
            if places is None:
                place = self._random.randrange(len(self._clients))
            else:
                place = places.get(kind, 0)
            attaches = place > 0 and one_of is not None and self._random.randrange(one_of) == 0
            if place == self._late:
                self._late, attaches = None, True
            if attaches and not self._running[place]:  # closing a client ends its other calls
                self._attach_again(place)
            self._running[place] += 1
        return place

    def _end_call(self, place: int) -> None:
        with self._lock:
            self._running[place] -= 1
