"""Mutants: planes with one realistic defect each, which the checks must detect.

    mutant.py    the class ``Mutant`` and the decorator ``@mutant``
    call.py      helpers for mutants that replace one method by a function
    registry.py  all mutants by name
    memory/      defects that show in one process, and races between its threads
    ray_store/   defects that need several processes, and races between processes
    async_trainer/  defects of the asynchronous trainer, which ``check-run`` must find in its log

A file is named after the section of the contract that its mutants violate first. Files named
``*_races`` contain defects that show only when calls overlap.
"""
