"""Tests of the scripts in ``ci/`` and of the workflows that call them."""
