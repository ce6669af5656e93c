"""Texts, files and Hypothesis strategies that several tests take as inputs."""
