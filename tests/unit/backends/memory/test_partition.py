"""The memory plane's behaviour that the contract does not define."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tensordict import TensorDict

from rlconform.backends.memory import TARGET, MemoryClient, engine
from rlconform.contract import (
    CapacityExceeded,
    ClientClosed,
    ConfigError,
    PlaneUnavailable,
    UnknownPartition,
)


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    client = MemoryClient()
    yield client
    client.close()


def put(client: MemoryClient, ids: list[str], dtype: torch.dtype = torch.float32) -> None:
    client.put_samples(ids, "p", TensorDict({"x": torch.zeros(len(ids), dtype=dtype)}, [len(ids)]))


def claim(client: MemoryClient, rows: int, task: str = "t") -> list[str]:
    return client.claim_meta("p", task, ["x"], rows, blocking=False).sample_ids


# Groups


def test_a_group_is_claimed_whole_whatever_order_its_rows_come_in(client: MemoryClient) -> None:
    client.register_partition("p", ["x"], 8, ["t"], grpo_group_size=2)
    put(client, ["u_g1", "v_g0", "w_g0"])
    assert claim(client, 8) == []
    put(client, ["w_g1", "u_g0"])
    assert claim(client, 3) == ["w_g0", "w_g1"]  # it was completed first
    assert claim(client, 3) == ["u_g1", "u_g0"]
    assert claim(client, 3) == []


def test_further_generations_of_a_prompt_make_further_groups(client: MemoryClient) -> None:
    client.register_partition("p", ["x"], 8, ["t"], grpo_group_size=2)
    put(client, ["u_g0", "u_g2", "u_g3"])
    assert claim(client, 4) == ["u_g2", "u_g3"]


def test_rows_without_a_generation_are_grouped_as_they_come(client: MemoryClient) -> None:
    client.register_partition("p", ["x"], 8, ["t"], grpo_group_size=2)
    put(client, ["a", "b", "c"])
    assert claim(client, 4) == ["a", "b"]
    put(client, ["d"])
    assert claim(client, 4) == ["c", "d"]


def test_a_group_that_lost_a_row_waits_for_it(client: MemoryClient) -> None:
    client.register_partition("p", ["x"], 8, ["t"], grpo_group_size=2)
    put(client, ["u_g0", "u_g1", "v_g0", "v_g1"])
    client.clear_samples(["u_g0"], "p")
    assert claim(client, 4) == ["v_g0", "v_g1"]
    put(client, ["u_g0"])
    assert claim(client, 4) == ["u_g1", "u_g0"]


def test_a_blocking_claim_that_groups_can_not_fill_is_refused(client: MemoryClient) -> None:
    client.register_partition("p", ["x"], 8, ["t"], grpo_group_size=4)
    with pytest.raises(ValueError, match="grpo_group_size"):
        client.claim_meta("p", "t", ["x"], 6)


def test_the_group_size_stays_while_there_are_rows(client: MemoryClient) -> None:
    client.register_partition("p", ["x"], 8, ["t"], grpo_group_size=2)
    put(client, ["u_g0"])
    with pytest.raises(ValueError, match="grpo_group_size"):
        client.register_partition("p", ["x"], 8, ["t"])
    client.clear_samples(None, "p")
    client.register_partition("p", ["x"], 8, ["t"])
    put(client, ["u_g0"])
    assert claim(client, 1) == ["u_g0"]


# Order


def test_a_row_is_as_old_as_its_first_put(client: MemoryClient) -> None:
    client.register_partition("p", ["x"], 8, ["t"])
    client.put_samples(["old"], "p", tags=[{"n": 1}])
    put(client, ["young"])
    put(client, ["old"])
    assert claim(client, 2) == ["old", "young"]


def test_a_row_claimed_for_some_fields_is_not_handed_out_for_others(client: MemoryClient) -> None:
    client.register_partition("p", ["x", "y"], 8, ["t"])

    def claim_with(*fields: str) -> list[str]:
        return client.claim_meta("p", "t", list(fields), 2, blocking=False).sample_ids

    assert [claim_with("x"), claim_with("y"), claim_with("x", "y")] == [[], [], []]
    put(client, ["a"])
    client.put_samples(["a", "b"], "p", TensorDict({"y": torch.zeros(2)}, [2]))
    assert [claim_with("y", "x"), claim_with("x"), claim_with("y")] == [["a"], [], ["b"]]
    put(client, ["b"])
    assert [claim_with("x"), claim_with("y"), claim_with("x", "y")] == [[], [], []]


def test_a_field_that_comes_late_is_seen_whatever_other_tasks_have_yet_to_look_at(
    client: MemoryClient,
) -> None:
    client.register_partition("p", ["x", "y"], 8, ["t", "u"])

    def claim_both() -> list[str]:
        return client.claim_meta("p", "u", ["x", "y"], 4, blocking=False).sample_ids

    put(client, ["a", "b", "c", "d"])
    assert claim(client, 1) == ["a"]
    assert claim_both() == []
    client.put_samples(["d"], "p", TensorDict({"y": torch.zeros(1)}, [1]))
    assert claim_both() == ["d"]


# Registration


def test_registering_a_partition_with_rows_adds_tasks_and_keeps_cursors(
    client: MemoryClient,
) -> None:
    client.register_partition("p", ["x"], 2, ["t"])
    put(client, ["a", "b"])
    assert claim(client, 1) == ["a"]
    client.register_partition("p", ["y"], 2, ["u"])
    assert claim(client, 2) == ["b"]
    assert claim(client, 2, "u") == ["a", "b"]


def test_registering_an_empty_partition_starts_it_anew(client: MemoryClient) -> None:
    client.register_partition("p", ["x"], 2, ["t"])
    put(client, ["a"])
    assert claim(client, 1) == ["a"]
    client.clear_samples(None, "p")
    assert client.check_consumption_status("p", ["t"])
    client.register_partition("p", ["x"], 2, ["u"])
    assert not client.check_consumption_status("p", ["u"])
    with pytest.raises(LookupError):
        claim(client, 1, "t")


def test_a_partition_may_be_written_before_it_is_registered(client: MemoryClient) -> None:
    put(client, ["a"])
    with pytest.raises(LookupError):
        claim(client, 1)
    client.register_partition("p", ["x"], 2, ["t"])
    assert claim(client, 2) == ["a"]


# Status


def test_a_cleared_row_leaves_the_count_whether_claimed_or_not(client: MemoryClient) -> None:
    client.register_partition("p", ["x"], 4, ["t", "u"])
    put(client, ["a", "b", "c"])
    claim(client, 2)
    client.clear_samples(["a"], "p")
    assert not client.check_consumption_status("p", ["t"])
    client.clear_samples(["c"], "p")
    assert client.check_consumption_status("p", ["t"])
    assert not client.check_consumption_status("p", ["t", "u"])


def test_a_row_counts_from_its_first_field_on(client: MemoryClient) -> None:
    client.register_partition("p", ["x"], 4, ["t"])
    client.put_samples(["a"], "p", tags=[{"n": 1}])
    assert not client.check_consumption_status("p", ["t"])
    put(client, ["a"])
    assert not client.check_consumption_status("p", ["t"])
    claim(client, 1)
    put(client, ["a"])
    assert client.check_consumption_status("p", ["t"])


# Kinds


def test_a_dtype_may_change_with_all_rows_of_its_field_at_once(client: MemoryClient) -> None:
    put(client, ["a", "b"])
    with pytest.raises(ValueError, match="float32"):
        put(client, ["a", "c"], torch.int64)
    with pytest.raises(LookupError):
        client.get_samples(["c"], "p", ["x"])
    put(client, ["c", "b", "a"], torch.int64)
    assert client.get_samples(["a", "b", "c"], "p", ["x"])["x"].dtype == torch.int64
    with pytest.raises(ValueError, match="int64"):
        put(client, ["a", "b"])


def test_cleared_rows_have_no_say_in_a_fields_dtype(client: MemoryClient) -> None:
    put(client, ["a", "b"])
    client.clear_samples(["a", "b"], "p")
    put(client, ["c"], torch.int64)
    assert client.get_samples(["c"], "p", ["x"])["x"].dtype == torch.int64


def test_a_refused_put_changes_none_of_its_other_fields(client: MemoryClient) -> None:
    put(client, ["a", "b"])
    both = TensorDict({"new": torch.ones(1), "x": torch.ones(1, dtype=torch.int64)}, [1])
    with pytest.raises(ValueError, match="int64"):
        client.put_samples(["a"], "p", both, tags=[{"seen": 1}])
    with pytest.raises(LookupError):
        client.get_samples(["a"], "p", ["new"])
    client.register_partition("p", ["x"], 2, ["t"])
    assert client.claim_meta("p", "t", ["x"], 1).tags == [{}]


# Capacity and planes


def test_a_full_plane_refuses_new_rows_and_takes_known_ones() -> None:
    client = MemoryClient({"enabled": True, "impl": "memory", "storage_capacity": 2})
    put(client, ["a", "b"])
    with pytest.raises(CapacityExceeded):
        client.put_samples(["c"], "elsewhere", tags=[{"n": 1}])
    with pytest.raises(UnknownPartition):
        client.get_samples(["c"], "elsewhere", ["x"])
    put(client, ["b", "a"])
    client.clear_samples(["a"], "p")
    put(client, ["c"])
    client.close()


def test_clients_attach_to_the_newest_plane_that_is_open() -> None:
    first, second = MemoryClient(), MemoryClient()
    put(first, ["first"])
    put(second, ["second"])
    assert MemoryClient(bootstrap=False).get_samples(["second"], "p", ["x"]) is not None
    second.close()
    assert MemoryClient(bootstrap=False).get_samples(["first"], "p", ["x"]) is not None
    first.close()


def test_there_is_nothing_to_attach_to_where_no_plane_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "_OPEN", [])  # other tests keep planes open in this process
    owner = MemoryClient()
    owner.close()
    with pytest.raises(PlaneUnavailable, match=r"^no memory plane is open in this process$"):
        MemoryClient(bootstrap=False)


def test_the_target_hands_on_its_configuration_and_who_owns_the_plane() -> None:
    owner = TARGET.open({"enabled": True, "impl": "memory", "storage_capacity": 1}, True)
    worker = TARGET.open({}, False)
    worker.put_samples(["a"], "p", tags=[{"n": 1}])
    with pytest.raises(CapacityExceeded):
        owner.put_samples(["b"], "p", tags=[{"n": 2}])
    owner.close()
    with pytest.raises(PlaneUnavailable):
        worker.put_samples(["a"], "p", tags=[{"n": 1}])


def test_a_closed_client_and_a_closed_plane_are_told_apart() -> None:
    owner = MemoryClient()
    worker, another = MemoryClient(bootstrap=False), MemoryClient(bootstrap=False)
    worker.close()
    with pytest.raises(ClientClosed, match=r"^this client was closed$"):
        put(worker, ["a"])
    put(another, ["a"])
    owner.close()
    with pytest.raises(PlaneUnavailable, match=r"^the plane's owner closed it$"):
        put(another, ["b"])


def test_a_block_for_another_implementation_is_refused() -> None:
    block = {"enabled": True, "impl": "ray_store", "name": "n", "storage_capacity": 2}
    with pytest.raises(ConfigError, match="'ray_store': expected 'memory'"):
        MemoryClient(block)
