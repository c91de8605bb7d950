"""What a check may say: every call written down, what was expected, a script that shows it."""
