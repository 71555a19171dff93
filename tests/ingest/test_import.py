"""`relayweb import`, as people run it."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import zstandard
from django.core.management import call_command

from relayweb.ingest import files
from tests.served import PROJECT, Served


def mark(**members: object) -> dict:
    event = {"kind": "mark", "atof_version": "0.1", "uuid": str(uuid4()), "parent_uuid": None, "name": "note"}
    return event | {"timestamp": "2026-01-01T00:00:00Z", "data": None, "metadata": None} | members


def lines(*events: dict) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def test_files_of_every_kind_are_imported_once(tmp_path: Path) -> None:
    home = Served(tmp_path / "home")
    events = [mark(), mark(), mark()]
    (tmp_path / "a.jsonl").write_bytes(lines(*events[:2]) + b"\n\n" + lines(events[2])[:-1])
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines(mark())) + gzip.compress(lines(mark())))
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard.compress(lines(mark())))
    (tmp_path / "empty.jsonl").write_bytes(b"")
    names = ["a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "empty.jsonl", "a.jsonl"]
    done = home.run("import", *(str(tmp_path / name) for name in names), "-", stdin=lines(mark(), events[0]))
    assert done.returncode == 0, done.stderr.decode()
    told = [line.removeprefix(f"{tmp_path}/") for line in done.stdout.decode().splitlines()]
    assert told == [
        "a.jsonl: accepted 3, duplicates 0, rejected 0",
        "b.jsonl.gz: accepted 2, duplicates 0, rejected 0",
        "c.jsonl.zst: accepted 1, duplicates 0, rejected 0",
        "empty.jsonl: accepted 0, duplicates 0, rejected 0",
        "a.jsonl: accepted 0, duplicates 3, rejected 0",
        "-: accepted 1, duplicates 1, rejected 0",
    ]
    assert len(home.run("export", "--format", "atof").stdout.splitlines()) == 7


def test_what_cannot_be_taken_is_named_and_the_rest_is(tmp_path: Path) -> None:
    home = Served(tmp_path / "home")
    (tmp_path / "bad.jsonl").write_bytes(lines(mark()) + b"not json\n\n" + lines(mark()) + b'{"kind": "odd"}\n')
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(lines(mark()))[:-9])
    (tmp_path / "good.jsonl").write_bytes(lines(mark()))
    names = ["bad.jsonl", "cut.jsonl.gz", "missing.jsonl", "good.jsonl"]
    done = home.run("import", *(str(tmp_path / name) for name in names))
    assert done.returncode == 1
    out, err = done.stdout.decode(), done.stderr.decode()
    assert f"{tmp_path}/bad.jsonl: accepted 2, duplicates 0, rejected 2" in out
    assert f"{tmp_path}/bad.jsonl:2: not JSON" in out and f"{tmp_path}/bad.jsonl:5: " in out
    assert f"{tmp_path}/cut.jsonl.gz: the file is damaged or breaks off" in err
    assert f"{tmp_path}/missing.jsonl" in err and "No such file" in err
    assert f"{tmp_path}/good.jsonl: accepted 1" in out
    assert "Traceback" not in err


def request(*names: str) -> dict:
    spans = [
        {
            "traceId": uuid4().hex,
            "spanId": uuid4().hex[:16],
            "name": name,
            "startTimeUnixNano": "1767225600000000000",
            "endTimeUnixNano": "1767225601000000000",
        }
        for name in names
    ]
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


def test_otlp_json_is_imported_by_the_line_and_indented(tmp_path: Path) -> None:
    home = Served(tmp_path / "home")
    per_line, indented = request("a", "b"), request("c")
    (tmp_path / "lines.json").write_bytes(lines(per_line, {"resourceSpans": 1}, request("d")))
    (tmp_path / "indented.json").write_text(json.dumps(indented, indent=2))
    done = home.run(
        "import", str(tmp_path / "lines.json"), str(tmp_path / "indented.json"), str(tmp_path / "lines.json")
    )
    assert done.returncode == 1
    told = [line.removeprefix(f"{tmp_path}/") for line in done.stdout.decode().splitlines()]
    assert told[0] == "lines.json: accepted 6, duplicates 0, rejected 1"
    assert told[1].startswith("lines.json:2: not an OTLP trace request")
    assert told[2] == "indented.json: accepted 2, duplicates 0, rejected 0"
    assert told[3] == "lines.json: accepted 0, duplicates 6, rejected 1"


def test_what_is_exported_as_otlp_is_imported_again(tmp_path: Path) -> None:
    home, other = Served(tmp_path / "home"), Served(tmp_path / "other")
    (tmp_path / "lines.json").write_bytes(lines(request("a", "b")))
    assert home.run("import", str(tmp_path / "lines.json")).returncode == 0
    exported = home.run("export", "--format", "otlp").stdout
    done = other.run("import", "-", stdin=exported)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    found = [json.loads(line) for line in other.run("export", "--format", "atof").stdout.splitlines()]
    assert sorted(e["name"] for e in found) == ["a", "a", "b", "b"]


def test_files_of_other_kinds_are_named_with_what_to_do(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a.jsonl"))
    others = {
        "a.tar.gz": (packed.getvalue(), "a tar archive"),
        "b.zip": (b"PK\x03\x04rest", "a zip archive"),
        "c.jsonl.xz": (lzma.compress(lines(mark())), "packed with xz"),
        "d.jsonl": (lines(mark()).decode().encode("utf-16"), "in UTF-16"),
    }
    (tmp_path / "folder").mkdir()
    for name, (data, _) in others.items():
        (tmp_path / name).write_bytes(data)
    done = Served(tmp_path / "home").run("import", str(tmp_path / "folder"), *(str(tmp_path / name) for name in others))
    assert done.returncode == 1 and not done.stdout
    told = done.stderr.decode().splitlines()
    assert "folder/*.jsonl" in told[0]
    for line, (_, what) in zip(told[1:], others.values(), strict=True):
        assert what in line and "gzip or zstd" in line


@pytest.mark.django_db(transaction=True)
def test_an_interrupted_import_says_how_far_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(mark(), mark()))
    whole = files.load

    def broken_off(path: str) -> Iterator[files.Progress]:
        yield from whole(path)
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "load", broken_off)
    out, err = io.StringIO(), io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("import", str(tmp_path / "a.jsonl"), "never.jsonl", stdout=out, stderr=err)
    assert ended.value.code == 130
    assert out.getvalue().splitlines() == [f"{tmp_path}/a.jsonl: accepted 2, duplicates 0, rejected 0"]
    assert "imported again" in err.getvalue() and "never" not in err.getvalue()


def test_what_a_collector_writes_of_all_signals_is_imported_without_the_metrics(tmp_path: Path) -> None:
    good = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "one", "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    requests = [
        {"resourceMetrics": [{"scopeMetrics": []}]},
        {"resourceSpans": [{"scopeSpans": [{"spans": [good, {"name": "nameless"}]}]}]},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": "5", "body": {"stringValue": "x"}}]}]}]},
    ]
    path = tmp_path / "all.json"
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(json.dumps(request).encode() for request in requests))
    done = Served(tmp_path / "home").run("import", str(path))
    assert done.returncode == 1 and not done.stderr
    told = [line.removeprefix(str(path)) for line in done.stdout.decode().splitlines()]
    assert told[0] == ": accepted 3, duplicates 0, rejected 1"
    assert told[1].startswith(":2: span 2: a span has a trace id")


def test_a_large_file_is_imported_in_constant_memory(tmp_path: Path) -> None:
    def peak(megabytes: int) -> int:
        home = Served(tmp_path / f"home-{megabytes}")
        with gzip.open(tmp_path / "large.jsonl.gz", "wb", compresslevel=1) as file:
            for number in range(megabytes * 100):
                file.write(lines(mark(data={"number": number, "text": f"{number} " * 1500})))
        code = (
            "import resource, sys\nfrom relayweb.cli import main\nmain()\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
        )
        command = [sys.executable, "-c", code, "import", str(tmp_path / "large.jsonl.gz")]
        done = subprocess.run(command, env=home.env, cwd=PROJECT, capture_output=True, timeout=300, text=True)
        assert f"accepted {megabytes * 100}," in done.stdout
        return int(done.stderr.split()[-1]) // 1024

    small, large = peak(5), peak(50)
    assert large < small + 60, f"{small} MB for 5 MB, {large} MB for 50 MB"
