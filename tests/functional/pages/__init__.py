"""Tests of the pages in a browser, and the browser."""
