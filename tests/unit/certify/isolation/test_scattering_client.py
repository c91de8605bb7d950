"""Calls go to the processes that a policy names."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.certify.isolation.scattering_client import (
    POLICIES,
    PicklingClient,
    Policy,
    ScatteringClient,
    kind_of,
    looks_apart,
    policy_of,
)
from rlconform.certify.recording.recorder import Recording
from rlconform.certify.recording.recording_client import RecordingClient

NAMES = ("client", "actor1", "actor2")


def scattering(policy: Policy) -> tuple[Any, Recording, list[int]]:
    """A scattering client over three clients of one plane in memory, and who attached again."""
    plane, recording, attached = MemoryClient(), Recording(), list[int]()
    clients = [RecordingClient(plane, recording, name) for name in NAMES]
    return ScatteringClient(clients, policy, 0, attached.append), recording, attached


def step(client: Any) -> None:
    """One step: register, put, tag, claim, read, ask and clear."""
    client.register_partition(partition_id="p", fields=["x"], num_samples=2, consumer_tasks=["t"])
    keys = {"sample_ids": ["a", "b"], "partition_id": "p"}
    client.put_samples(**keys, fields=TensorDict({"x": torch.zeros(2)}, batch_size=[2]))
    client.put_samples(**keys, tags=[{"n": 1}, {"n": 2}])
    meta = client.claim_meta(partition_id="p", task_name="t", required_fields=["x"], batch_size=2)
    client.get_data(meta)
    client.check_consumption_status(partition_id="p", task_names=["t"])
    client.clear_samples(**keys)


def makers(recording: Recording) -> list[tuple[str, str]]:
    return [(call.who, call.text.partition(".")[2].partition("(")[0]) for call in recording.calls]


def test_roles_run_in_their_processes() -> None:
    client, recording, attached = scattering(Policy("apart", {"put": 1, "tag": 2, "claim": 2}))
    step(client)
    assert makers(recording) == [
        ("client", "register_partition"),
        ("actor1", "put_samples"),
        ("actor2", "put_samples"),
        ("actor2", "claim_meta"),
        ("client", "get_data"),
        ("client", "check_consumption_status"),
        ("client", "clear_samples"),
    ]
    assert attached == []


def test_a_late_process_attaches_again_before_its_first_call_only() -> None:
    client, _, attached = scattering(Policy("late", {"put": 1, "tag": 1}, late=1))
    step(client)
    assert attached == [1]


def test_a_clear_of_everything_is_made_by_every_process_that_has_put_rows() -> None:
    client, recording, _ = scattering(Policy("apart", {"clear": 1, "put": 1, "tag": 2}))
    step(client)
    made = len(recording.calls)
    client.clear_samples(sample_ids=None, partition_id="p")
    assert [who for who, _ in makers(recording)[made:]] == ["actor1", "actor2"]


def test_a_process_that_only_looks_makes_no_change() -> None:
    client, recording, attached = scattering(Policy("apart", looks_apart(changes=1, looks=2)))
    step(client)
    looks = [method for who, method in makers(recording) if who == "actor2"]
    assert looks == ["claim_meta", "get_data", "check_consumption_status"]
    assert {who for who, _ in makers(recording)} == {"actor1", "actor2"}
    assert attached == []


def test_refused_calls_follow_a_part_of_the_calls_but_claims() -> None:
    """They are made where the policy has them, in the process of the call before."""
    for policy in (Policy("apart", {"put": 1}), Policy("apart", {"put": 1}).with_refused()):
        plane, refused = MemoryClient(), list[int]()
        clients = [RecordingClient(plane, Recording(), name) for name in NAMES]
        client: Any = ScatteringClient(clients, policy, 0, lambda _place: None, refused.append)
        client.refuse_in_each()
        assert refused == ([0, 1, 2] if policy.refused else [])
        for _ in range(8):
            step(client)
        assert bool(refused) == policy.refused
    assert set(refused[3:]) == {0, 1}
    assert 8 * 2 < len(refused[3:]) < 8 * 5, "a step has six calls but its claim"


def test_random_processes_repeat_with_the_seed_and_use_all() -> None:
    rounds = []
    for _ in range(2):
        client, recording, _ = scattering(Policy("random", None))
        for _ in range(3):
            step(client)
        rounds.append(makers(recording))
    assert rounds[0] == rounds[1]
    assert {who for who, _ in rounds[0]} == set(NAMES)


def test_checks_and_seeds_get_different_policies() -> None:
    checks = [f"unit/test_{n}.py::test" for n in range(200)]
    policies = [policy_of(check, 0) for check in checks]
    usual = [policy for policy in policies if not policy.refused]
    assert {policy.name for policy in usual} == {policy.name for policy in POLICIES}
    assert 1 / 4 < 1 - len(usual) / len(policies) < 1 / 2, "one of three has refused calls"
    assert policy_of(checks[0], 0) != policy_of(checks[0], 1)


def test_the_processes_of_random_sequences_attach_anew_now_and_then() -> None:
    client, _, attached = scattering(policy_of("unit/test.py::test", 0, roles=False))
    for _ in range(300):
        step(client)
    assert set(attached) == {1, 2}
    assert len(attached) < 300 * 7 / 50


def test_each_method_has_a_kind() -> None:
    assert kind_of("put_samples", {"fields": None, "tags": []}) == "tag"
    assert kind_of("put_samples", {"fields": 1}) == "put"
    with pytest.raises(KeyError):
        kind_of("no_method", {})


def test_the_owners_metas_are_copies() -> None:
    plane = MemoryClient()
    client: Any = PicklingClient(plane)
    plane.register_partition("p", ["x"], 1, ["t"])
    receipt = client.put_samples(["a"], "p", TensorDict({"x": torch.zeros(1)}, batch_size=[1]))
    assert (receipt.sample_ids, receipt.fields) == (["a"], ["x"])
    assert client.get_samples(["a"], "p", ["x"])["x"].tolist() == [0.0]
