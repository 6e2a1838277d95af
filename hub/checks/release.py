"""Signatures of published tags by SSH keys, as git makes them: OpenSSH's ssh-keygen signs and verifies.

What is signed names the repository, the tag and the sha256 of kcard.json, which lists the sha256 of every other file.
With the signature after it, it is the message of the tag.
"""

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kcard.errors import HubError, MissingExtra, UsageError

__all__ = ["BEGIN", "Release", "Signed", "check_key", "key_of", "sign", "signed", "verify"]

PROGRAM = "ssh-keygen"
NAMESPACE = "kcard"  # keeps signatures for other purposes from counting here
BEGIN = "-----BEGIN SSH SIGNATURE-----\n"
TEXT = re.compile(r"kcard release\nrepository (\S+)\ntag (\S+)\nversion ([0-9a-f]{64})\n")
GOOD = re.compile(r'Good "kcard" signature(?: for \S+)? with (\S+) key (\S+)')
LONGEST = 10_000  # characters of a signature
SECONDS = 20


@dataclass(frozen=True)
class Release:
    """What is signed: a version, by the sha256 of its kcard.json, under a tag of a repository."""

    repository: str
    tag: str
    version: str

    def __str__(self) -> str:
        return f"{self.repository}@{self.tag} (sha256 {self.version[:12]})"

    @property
    def text(self) -> str:
        return f"kcard release\nrepository {self.repository}\ntag {self.tag}\nversion {self.version}\n"

    @property
    def signer(self) -> str:
        """Who must have signed it: the namespace, as a principal of an allowed signers file."""
        return self.repository.partition("/")[0]


@dataclass(frozen=True)
class Signed:
    """A release with its armoured signature, which was not checked."""

    release: Release
    signature: str

    @property
    def message(self) -> str:
        """The message of the tag."""
        return self.release.text + self.signature


def signed(message: str) -> Signed | None:
    """What the message of a tag has; None if it is not signed, or not in this form."""
    text, begin, rest = message.replace("\r\n", "\n").partition(BEGIN)
    found = TEXT.fullmatch(text)
    if found is None or not begin or len(rest) > LONGEST:
        return None
    return Signed(Release(*found.groups()), begin + rest)


def _program() -> str:
    """The path of ssh-keygen. Raises MissingExtra without it."""
    found = shutil.which(PROGRAM)
    if found is None:
        raise MissingExtra(f"signatures need {PROGRAM}: install OpenSSH 8.2 or later")
    return found


def check_key(key: Path) -> None:
    """Raise MissingExtra without ssh-keygen, UsageError if there is no such key."""
    _program()
    if not key.is_file():
        raise UsageError(f"key {key} is not a file: give an SSH key, such as ~/.ssh/id_ed25519")


def sign(release: Release, key: Path) -> Signed:
    """Sign with the private key in a file, or with the agent's for a public one. ssh-keygen may ask for a passphrase.

    Raises as `check_key`, and UsageError if the key does not sign.
    """
    check_key(key)
    command = [_program(), "-Y", "sign", "-q", "-n", NAMESPACE, "-f", str(key)]
    done = subprocess.run(command, input=release.text.encode(), stdout=subprocess.PIPE, check=False)
    text = done.stdout.decode(errors="replace")
    if done.returncode != 0 or not text.startswith(BEGIN):
        raise UsageError(
            f"{PROGRAM} can't sign with {key}: give a private SSH key, or a public one of your agent"
        )
    return Signed(release, text)


def verify(signed: Signed | None, release: Release, signers: Path) -> str:
    """The key that signed a release, as its type and fingerprint, if a file of allowed signers has it.

    signers  the format of ssh-keygen(1), section ALLOWED SIGNERS; the principal is the namespace of the repository
    Raises HubError if the signature is missing, wrong, or of another key or release; MissingExtra, UsageError.
    """
    _program()
    if not signers.is_file():
        raise UsageError(
            f"signers {signers} is not a file: give one with a line `{release.signer} ssh-ed25519 AAAA…`"
        )
    name = f"{release.repository}@{release.tag}"
    if signed is None:
        raise HubError(f"{name} is not signed: ask {release.signer} to sign it, or pull it without --signers")
    if signed.release != release:
        raise HubError(f"the signature of {name} is for {signed.release}, not for {release}")
    known = key_of(signed)
    if known is None:
        raise HubError(f"the signature of {name} is wrong: the tag was forged or damaged")
    said = _run(signed, "verify", "-f", str(signers.absolute()), "-I", release.signer)
    if said is None:
        raise HubError(
            f"{name} is signed with {known}, which {signers} does not have for {release.signer}: add the key if you "
            "trust it"
        )
    return known


@lru_cache(maxsize=1000)
def key_of(signed: Signed) -> str | None:
    """The key that made a signature, whoever has it, as its type and fingerprint; None if the signature is wrong.

    Raises MissingExtra.
    """
    return _run(signed, "check-novalidate")


def _run(signed: Signed, *arguments: str) -> str | None:
    """The key of a signature that ssh-keygen accepts."""
    with tempfile.TemporaryDirectory(prefix="kcard-signature-") as folder:
        path = Path(folder) / "signature"
        path.write_text(signed.signature)
        command = [_program(), "-Y", *arguments, "-n", NAMESPACE, "-s", str(path)]
        try:
            done = subprocess.run(
                command,
                input=signed.release.text.encode(),
                capture_output=True,
                env={"HOME": folder},
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
    found = GOOD.search(done.stdout.decode(errors="replace"))
    return f"{found[1]} {found[2]}" if done.returncode == 0 and found is not None else None
