"""Tests of the profiler; a package, so that its conftest is its own."""
