"""Tests of the policy-gradient loss."""
