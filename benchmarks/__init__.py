"""The scripts behind the figures in docs/.

A package, since a dependency installs one of this name: run from the repository root, this one is found first.
"""
