"""Tests of router replay."""
