"""The policy workers: the data-parallel ranks of the policy as Ray actors.

    policy_model          logprobs and updates of one rank, on tensors in memory
    policy_worker         a rank as an actor that receives its rows from the driver
    plane_policy_worker   a rank as an actor that reads its rows from a data plane
    worker_group          all ranks, called together
    train_step, witness   what a rank keeps of an update in chunks; which rows it was trained on
    microbatches          which rows of a rank go through the model together
    data_parallel         DDP or FSDP: one model on all ranks, gradients summed over them
    optimizer, checkpoint, determinism, flops

Workers know nothing about rollouts or rewards.
"""
