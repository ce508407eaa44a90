"""A second run changes none of the user's files, and finds them as the first one did."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.watching.test_faults import BY_HAND, run
from tests.watching.test_policies import written

WRITES = """
import json, shutil
os.mkdir("runs")
try:
    os.mkdir("old")
except FileExistsError:
    pass
with open("log.txt", "a") as log: log.write("line\\n")
torch.save({"a": 1}, "runs/model.pt")
assert torch.load("runs/model.pt") == {"a": 1}
with open("runs/part", "x") as part: part.write("done")
os.replace("runs/part", "runs/whole")
assert sorted(os.listdir("runs")) == ["model.pt", "whole"]
assert open("runs/whole").read() == "done" and not os.path.exists("runs/part")
assert os.path.exists("old/notes")
if not os.path.exists("kept"): open("kept", "w").write("first")
else: raise RuntimeError("resumed")
shutil.rmtree("scrap", ignore_errors=True)
assert not os.path.exists("scrap")
os.mkdir("scrap"); open("scrap/new", "w").close()
assert os.listdir("scrap") == ["new"]
torch.manual_seed(0)
"""


def test_no_line_is_appended_twice_and_what_the_first_run_made_is_not_there(tmp_path: Path) -> None:
    script = written(
        tmp_path,
        BY_HAND.replace("torch.manual_seed(0)", WRITES).replace("SECOND", ""),
    )
    (tmp_path / "log.txt").write_text("before\n")
    for name in ("old", "scrap"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes").write_text("mine")
    result = run(script, "--json", "report.json")
    assert result.returncode == 3
    assert "running the script again" in result.stderr
    assert '"reproduced": "rerun"' in (tmp_path / "report.json").read_text(), result.stderr
    assert (tmp_path / "log.txt").read_text() == "before\nline\n"
    assert (tmp_path / "runs" / "whole").read_text() == "done"
    assert (tmp_path / "old" / "notes").read_text() == "mine"
    assert [p.name for p in (tmp_path / "scrap").iterdir()] == ["new"]


# Run twice, in place and aside: the second time it must see the same and change nothing.
AGAIN = """
import bz2, glob, gzip, multiprocessing, os, pathlib, shutil, sqlite3, sys, tempfile, zipfile
from pathlib import Path

def told(name):
    with open("all.log", "a") as log: log.write(name)

home = os.getcwd()
# Read back, change, move, remove.
os.makedirs("out/deep/er"); Path("out/deep/a.txt").write_text("1")
with open("out/deep/a.txt", "r+") as file: file.write("2"); file.seek(0); assert file.read() == "2"
os.replace("out/deep/a.txt", "out/b.txt"); shutil.move("out/deep", "out/moved")
assert sorted(os.listdir("out")) == ["b.txt", "moved"], os.listdir("out")
shutil.copy2("out/b.txt", "out/c.txt"); shutil.copy2("mine.txt", "out/d.txt")
shutil.copytree("folder", "out/folder", symlinks=True)
assert [str(p) for p in sorted(Path("out").rglob("*.txt"))] == [
    "out/b.txt", "out/c.txt", "out/d.txt", "out/folder/inside.txt", "out/folder/sub/low.txt"], (
    sorted(Path("out").rglob("*.txt")))
assert glob.glob("out/folder/**/*.txt", recursive=True) and Path("out/c.txt").exists()
shutil.move("folder", "elsewhere"); assert not os.path.isdir("folder")
assert Path("elsewhere/inside.txt").read_text() == "kept"
Path("mine.txt").unlink(); assert not Path("mine.txt").exists()
Path("mine.txt").write_text("new"); Path("mine.txt").rename("yours.txt")
assert not os.path.lexists("mine.txt") and open("yours.txt").read() == "new"
# Links: by their own names, to real files and folders, absolute and not.
os.symlink(os.path.join(home, "real"), "to_real"); Path("to_real/precious.txt").write_text("spoilt")
assert Path("real/precious.txt").read_text() == "spoilt"
with open("link_to_precious", "a") as file: file.write("!")
assert Path("real/precious.txt").read_text() == "spoilt!"
os.remove("link_to_precious"); assert Path("real/precious.txt").exists()
os.unlink("to_real"); assert Path("real/precious.txt").exists()
os.symlink("b.txt", "out/latest"); assert Path("out/latest").read_text() == "2"
os.link("kept.txt", "hard.txt"); Path("hard.txt").write_text("by another name")
Path("kept.txt").chmod(0o600); os.utime("kept.txt", (1, 1)); os.truncate("kept.txt", 2)
# Where it stands.
os.mkdir("work"); os.chdir("work"); assert os.getcwd() == home + "/work"
Path("here.txt").write_text("x"); assert Path("../kept.txt").read_text() == "by"
assert os.path.abspath("here.txt") == home + "/work/here.txt"
os.chdir(".."); assert os.listdir("work") == ["here.txt"]
# Streams, descriptors, temporary files.
open("/dev/null", "w").write("x"); reading, writing = os.pipe()
with os.fdopen(writing, "w") as pipe: pipe.write("y")
assert open(reading).read() == "y"
number = os.open("raw.bin", os.O_CREAT | os.O_WRONLY | os.O_EXCL); os.write(number, b"z"); os.close(number)
with tempfile.NamedTemporaryFile(dir=".") as file: file.write(b"x"); file.flush()
assert not os.path.exists(file.name)
with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as file: file.write("whole")
os.replace(file.name, "atomic.txt"); assert open("atomic.txt").read() == "whole"
with tempfile.TemporaryFile(dir=".") as file: file.write(b"x")
with tempfile.TemporaryDirectory(dir=".") as folder: Path(folder, "x").touch()
with gzip.open("a.gz", "wt") as file: file.write("x")
with bz2.open("a.bz2", "wt") as file: file.write("x")
with zipfile.ZipFile("a.zip", "w") as file: file.writestr("x", "y")
assert zipfile.ZipFile("a.zip").read("x") == b"y"
with sqlite3.connect("a.db") as base: base.execute("create table t (x)"); base.execute("insert into t values (1)")
base.close(); base = sqlite3.connect("a.db"); assert list(base.execute("select * from t")) == [(1,)]
# Other processes.
child = multiprocessing.get_context("fork").Process(target=told, args=("child ",)); child.start(); child.join()
told("parent "); assert open("all.log").read().endswith("before child parent ")
os.system("mkdir -p theirs && echo x > theirs/made.txt"); assert open("theirs/made.txt").read()
Path("theirs/ours.txt").write_text("x"); assert sorted(os.listdir("theirs")) == ["made.txt", "ours.txt"]
os.system("echo part > part.txt"); os.replace("part.txt", "whole.txt"); assert open("whole.txt").read() == "part\\n"
# What is not there.
for work in (os.stat, os.remove, os.rmdir, os.listdir, open, lambda p: os.rename(p, "x"), lambda p: os.mkdir(p + "/x")):
    try: work("nothing")
    except FileNotFoundError as error: assert error.filename in ("nothing", "nothing/x") or "nothing" in error.filename
    else: raise AssertionError(work)
for work in (os.remove, lambda p: open(p, "w")):
    try: work("real")
    except OSError: pass
    else: raise AssertionError(work)
try: os.rmdir("real")
except OSError: pass
else: raise AssertionError
shutil.rmtree("real"); assert not os.path.exists("real/precious.txt") and os.access("real", 0) is False
os.mkdir("real"); assert os.listdir("real") == []
"""
ASIDE = """
import os, sys
from whynan.run.aside import Redirection
from whynan.run.laid import Aside
script = open("../again.py").read()
Redirection(Aside(folder=sys.argv[1], since_s=float(sys.argv[2])), ()).start()
exec(compile(script, "again.py", "exec"))
"""


def test_whatever_python_does_with_files_is_done_again_and_changes_none(tmp_path: Path) -> None:
    home, aside = tmp_path / "home", tmp_path / "kept" / "aside"
    for folder in (home / "real", home / "folder" / "sub"):
        folder.mkdir(parents=True)
    for name in (
        "real/precious.txt",
        "folder/inside.txt",
        "folder/sub/low.txt",
        "mine.txt",
        "kept.txt",
    ):
        (home / name).write_text("kept")
    (home / "all.log").write_text("before ")
    (home / "link_to_precious").symlink_to(home / "real" / "precious.txt")
    (tmp_path / "again.py").write_text(AGAIN)
    plain = tmp_path / "plain"
    shutil.copytree(home, plain, symlinks=True)
    (plain / "link_to_precious").unlink()
    (plain / "link_to_precious").symlink_to(plain / "real" / "precious.txt")
    since_s = time.time()
    time.sleep(0.05)  # the system dates files by ticks of its own
    python(plain, "../again.py")
    for made in plain.iterdir():  # by the first run; what it changed is as it was
        if made.name not in ("yours.txt", "elsewhere") and not os.path.lexists(home / made.name):
            (shutil.copytree if made.is_dir() else shutil.copy)(made, home / made.name)
    time.sleep(0.05)
    aside.mkdir(parents=True)
    before = contents(home)
    python(home, "-c", ASIDE, str(aside), str(since_s))
    after = contents(home)
    assert after == before | {"theirs/made.txt": after["theirs/made.txt"]}


def python(folder: Path, *args: str) -> None:
    command = [sys.executable, *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def contents(folder: Path) -> dict[str, tuple[bytes, int, float]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            status = path.stat()
            found[str(path.relative_to(folder))] = (
                path.read_bytes(),
                status.st_mode,
                status.st_mtime,
            )
    return found
