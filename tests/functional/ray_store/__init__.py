"""Tests of what the ray_store plane guarantees beyond the contract."""
