"""The reference GRPO: one algorithm and two trainers, in memory and through a data plane.

    training_loop.train ──▶ Trainer.step ──▶ RolloutWorker (actor) ──▶ GenerationEngine, RolloutTask
                                         ──▶ PolicyWorker (one actor per rank) ──▶ PolicyModel

The driver runs ``training_loop`` and the trainer; ``actors.RunActors`` starts the actors.
"""
