"""Tests of the trainers."""
