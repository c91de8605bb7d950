"""Histories: what several processes did to a plane at once, and what a pure checker says of it.

    stage.play(Producer(...), Claimer(...))     each role in a process, or a thread, of its own
        role ──calls──▶ client ──▶ plane        every call: who, what, start, end, what came
        ◀──events──                             fetched also while a call hangs
    judge(history, duplicated, lost)            one small function for each verdict

``events`` the record · ``rows`` bytes that say whose they are · ``roles`` what a process does ·
``performer`` and ``crowd`` run roles · ``timeline`` what must be so at a time, and what may be ·
``claims``, ``reads``, ``tags``, ``status``, ``calls`` the verdicts · ``explain`` the words ·
``scripts`` the same race as plain client calls.
"""
