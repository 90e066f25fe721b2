"""The vocabulary: plain frozen data that every other package speaks. Imports nothing of ours."""
