"""Every document of a folder, one by one: is it read, refused with a reason, or does a converter crash or hang?

    python -m benchmarks.converters --path /usr/share/doc [--seconds 60]

Counts, by suffix, files that were read, without text, and refused, with passages, megabytes and seconds. Names each
crash and each file that takes longer than `--seconds`; the exit status is 1 where there is one.
"""

import argparse
import signal
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from kcard.errors import CorpusError
from kcard.training.corpora.compressed import opened
from kcard.training.corpora.document import Document
from kcard.training.corpora.formats import Format, format_of
from kcard.training.passages import passages


class TooLongError(Exception):
    """The time for a file is over."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, nargs="+", required=True)
    parser.add_argument("--seconds", type=int, default=60)
    args = parser.parse_args()
    signal.signal(signal.SIGALRM, _over)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: Counter[str] = Counter()
    failed = []
    for file in sorted(file for root in args.path for file in root.rglob("*") if file.is_file()):
        kind = format_of(file)
        if kind is None:
            continue
        suffix = Path(file.name.removesuffix(".gz")).suffix.lower() or "(none)"
        counted, begun = counts[suffix], time.perf_counter()
        signal.alarm(args.seconds)
        try:
            found = _passages(file, kind)
            counted["passages"] += found
            counted["read" if found else "empty"] += 1
        except CorpusError as error:
            counted["refused"] += 1
            reasons[str(error).replace(str(file), "FILE").partition(":")[0][:100]] += 1
        except Exception as error:  # noqa: BLE001 (any is a crash)
            failed.append(f"{file}: {type(error).__name__} {error}")
        finally:
            signal.alarm(0)
        counted["bytes"] += file.stat().st_size
        counted["milliseconds"] += round(1000 * (time.perf_counter() - begun))
    print("| suffix | read | empty | refused | passages | MB | s |\n|---|---|---|---|---|---|---|")
    for suffix, c in sorted(counts.items(), key=lambda row: -row[1]["read"]):
        told = (c["read"], c["empty"], c["refused"], c["passages"], f"{c['bytes'] / 1e6:.1f}")
        print(f"| {suffix} | {' | '.join(map(str, told))} | {c['milliseconds'] / 1000:.1f} |")
    print("", *(f"{count} refused: {reason}" for reason, count in reasons.most_common(12)), sep="\n")
    print("", f"{len(failed)} crashes and hangs", *failed, sep="\n")
    return 1 if failed else 0


def _passages(file: Path, kind: Format) -> int:
    with opened(file) as plain:
        return sum(1 for _ in passages(kind.read(Document(plain, file.name)), file.name))


def _over(*_: object) -> None:
    raise TooLongError


if __name__ == "__main__":
    sys.exit(main())
