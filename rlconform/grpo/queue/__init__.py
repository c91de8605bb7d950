"""The trajectory queue of an asynchronous run (``async_rl.transport: queue``), and its two sides.

trajectory_queue  the queue as a state machine that never waits
queue_actor       the queue as an asynchronous actor: its callers wait
queue_client      the calls of a producer or a consumer
rollouter         the producer: generates groups and puts their metas
queue_trainer     the consumer, and the synchroniser of the weights
queue_controller  rollouter, trainer and synchroniser in one event loop
"""
