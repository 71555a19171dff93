from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any

from relayweb import commands
from relayweb.ingest import files
from relayweb.recording.writing.writer import writer


class Command(commands.Command):
    _interrupted = False
    help = "Import recorded events, one ATOF event a line, gzip or zstd or plain. Importing twice is harmless."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("paths", nargs="+", metavar="PATH", help="a file; - is standard input")

    def handle(self, *args: Any, **options: Any) -> None:
        fine = []
        try:
            for path in options["paths"]:
                fine.append(self._load(path))
                if self._interrupted:
                    break
        finally:
            writer().close()
        if self._interrupted:
            raise SystemExit(130)
        if not all(fine):
            raise SystemExit(1)

    def _load(self, path: str) -> bool:
        shown = 0.0
        progress = None
        trouble = ""
        try:
            for progress in files.load(path):
                if self.stderr.isatty() and time.monotonic() - shown > 0.2:
                    shown = time.monotonic()
                    self.stderr.write(f"\r{path}: {_share(progress)}", ending="")
                    self.stderr.flush()
        except OSError as error:
            trouble = error.strerror or str(error)
        except files.Unreadable as error:
            trouble = str(error)
        except KeyboardInterrupt:
            trouble, self._interrupted = "interrupted; what is not counted here comes when it is imported again", True
        if progress is not None:
            self._report(path, progress.tally)
        if trouble:
            self.stderr.write(f"{path}: {trouble}")
        return not trouble and progress is not None and not progress.tally.rejected

    def _report(self, path: str, tally: Any) -> None:
        rejected = len(tally.rejected) + tally.rejected_more
        if self.stderr.isatty():
            self.stderr.write("\r\033[K", ending="")
        self.stdout.write(f"{path}: accepted {tally.accepted}, duplicates {tally.duplicates}, rejected {rejected}")
        for rejection in tally.rejected:
            self.stdout.write(f"{path}:{rejection['line']}: {rejection['error']}")
        if tally.rejected_more:
            self.stdout.write(f"{path}: and {tally.rejected_more} more")


def _share(progress: files.Progress) -> str:
    done = f"{100 * progress.read / progress.size:.0f} %" if progress.size else f"{progress.read / 1e6:.0f} MB"
    return f"{done}, {progress.tally.accepted} accepted"
