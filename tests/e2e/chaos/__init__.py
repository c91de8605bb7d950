"""A process of a run is killed, stopped or slowed down, or a message is lost; the run is judged.

scenarios   the table: which process, when, what happens to it, and how the run must end
run_state   what the event log says at a moment
victims     finds the process
faults      what happens to it
chaos_run   starts ``rlconform train``, waits for the moment, strikes, and waits for the end
lossy_train ``rlconform train`` with a message that is lost
verdict     whether the run ended as it must
"""
