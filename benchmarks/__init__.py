"""The scripts behind the figures in docs/.

A package, because a dependency installs a package of the same name; run from the repository root, this one is imported.
"""
