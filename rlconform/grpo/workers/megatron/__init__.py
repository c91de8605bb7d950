"""The policy on Megatron-core: tensor, pipeline, expert and data parallelism.

    policy          a rank's policy, with the interface of ``workers.policy``
    passes          micro-batches through Megatron's schedules; logprobs of split vocabularies
    context_parallel   parts of rows for context-parallel ranks
    replay          router replay of these micro-batches
    parallel        process groups; how ranks fail together; plan_check compares their plans
    model           a Hugging Face model's layers as Megatron's
    weight_map, weights   where a rank's weights lie in a checkpoint; loading and gathering
    optimizer, checkpoint

Only these modules import Megatron-core, an extra: ``pip install "rlconform[megatron]"``.
"""
