"""The prompt groups of an asynchronous run between dispatch and training.

versions    a group's weight versions, and its staleness
slots       the states of a group, reasons for a drop
buffer      ReplayBuffer: slots, commits, drops
samplers    which prompts are dispatched, and which groups a step trains on
budget      retries and skips of prompts
checkpoint  the buffer in a checkpoint
errors      errors of the buffer and its checkpoints
changed     waiting for a condition in an event loop
idle        idle seconds by cause
"""
