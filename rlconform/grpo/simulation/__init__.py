"""The asynchronous trainer on a simulated clock: hours of a run take milliseconds.

loop      an event loop whose clock jumps to the next timer
log       the files of events of a run, with simulated times
engines   rollout workers whose generations take simulated time
world     engines, policy workers, dataloader and plane of a run, and what goes wrong in them
run       a run of steps, with restarts from checkpoints
scenario  the configuration of a run, and its world

Real are the controller, its pumps, queue, buffer, samplers, weight sync, watchdog and checkpoints,
the port to the rollout workers, everything that writes events, and the plane. Simulated are the
generation of tokens, the training on rows, the transfer of weights, and Ray's calls.
"""
