"""Races as plain client calls in threads, one module each, for scripts that a vendor can run.

A script is a module's source between a header and a footer, see ``race_script``. ``EXPECTED`` says
what a correct plane does. ``run`` makes the calls and reports what a correct plane never shows.
"""
