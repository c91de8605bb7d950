"""The policy workers: the ranks of the policy as Ray actors.

    policy                updates of one rank in chunks, whatever runs its model
    policy_model, megatron   a model of transformers; a part of one on Megatron-core
    rank_layout           which part of the model and which rows each rank has
    policy_worker         a rank as an actor that receives its rows from the driver
    plane_policy_worker   a rank as an actor that reads its rows from a data plane
    worker_group          all ranks, called together
    train_step, witness   what a rank keeps of an update in chunks; which rows it was trained on
    microbatches          which rows of a rank go through the model together
    data_parallel         DDP or FSDP: one model on all ranks, gradients summed over them
    optimizer, checkpoint, determinism, flops

Workers know nothing about rollouts or rewards.
"""
