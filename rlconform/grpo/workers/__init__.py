"""The policy's workers: data-parallel ranks as Ray actors.

    policy          a rank's logprobs and updates, on tensors that it is given
    worker          that rank as an actor; plane_worker, one that fetches its rows from a plane
    group           the actors, driven together
    microbatches    a rank's rows in the pieces that go through the model
    parallel        replicas or shards of the model, sums over ranks
    state           checkpoints

Nothing in here knows of rollouts or rewards.
"""
