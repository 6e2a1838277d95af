"""The version of kcard, for every module, which would otherwise import the package that imports it."""

__version__ = "0.1.0"
