"""The action runs by its own entry point, with a recorded event, against an API on loopback."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
import yaml
from tests.small_spec import SPEC

ACTION = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text("utf-8"))
STEP = next(each for each in ACTION["runs"]["steps"] if each.get("id") == "review")
MARKER = "<!-- tunec: review -->"


class Api(BaseHTTPRequestHandler):
    """Lists, writes and updates the comments of pull request 7."""

    def answer(self, code, data):
        text = json.dumps(data).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def heard(self):
        url = urlparse(self.path)
        self.server.heard.append(f"{self.command} {url.path}")
        assert self.headers["Authorization"] == "Bearer secret"
        return url

    def do_GET(self):
        url = self.heard()
        assert url.path == "/repos/us/configs/issues/7/comments"
        query = {name: int(each[0]) for name, each in parse_qs(url.query).items()}
        first = (query["page"] - 1) * query["per_page"]
        self.answer(200, self.server.comments[first : first + query["per_page"]])

    def changed(self, code, comment):
        length = int(self.headers["Content-Length"])
        data = json.loads(self.rfile.read(length))
        if self.server.is_read_only:
            self.answer(403, {"message": "Resource not accessible by integration"})
            return
        comment["body"] = data["body"]
        if comment not in self.server.comments:
            self.server.comments.append(comment)
        self.answer(code, comment)

    def do_POST(self):
        assert self.heard().path == "/repos/us/configs/issues/7/comments"
        self.changed(201, {"id": 1000, "body": ""})

    def do_PATCH(self):
        number = int(self.heard().path.removeprefix("/repos/us/configs/issues/comments/"))
        self.changed(200, next(e for e in self.server.comments if e["id"] == number))

    def log_message(self, *_):
        pass


@pytest.fixture
def api():
    """A server with more comments of others than one page holds."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    server.comments = [{"id": number, "body": f"word {number}"} for number in range(120)]
    server.heard, server.is_read_only = [], False
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Work:
    """A clone as GitHub checks it out, and the step of action.yml that is run in it."""

    def __init__(self, folder: Path, api: ThreadingHTTPServer) -> None:
        self.folder, self.api = folder, api
        self.base = self.head = ""

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
        done = subprocess.run(
            ["git", *who, *words], cwd=self.folder, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def write(self, text: str) -> None:
        (self.folder / "specs").mkdir(exist_ok=True)
        (self.folder / "specs/small.yaml").write_text(text, "utf-8")

    def begin(self) -> None:
        self.write(SPEC)
        self.git("init", "-q")
        self.git("add", ".")
        self.git("commit", "-qm", "first")
        self.base = self.git("rev-parse", "HEAD")

    def push(self, text: str) -> None:
        """The branch changes the spec; what it is merged into has gone on; both are merged."""
        self.git("checkout", "-q", "-B", "branch", self.base)
        self.write(text)
        self.git("commit", "-qam", "change")
        self.head = self.git("rev-parse", "HEAD")
        self.git("checkout", "-q", "-B", "merge", self.base)
        (self.folder / "README.md").write_text("others\n", "utf-8")
        self.git("add", ".")
        self.git("commit", "-qm", "others")
        self.git("merge", "-q", "--no-ff", "-m", "merge", "branch")

    def run(self, from_repository: str = "us/configs", **inputs: str):
        event = {
            "pull_request": {
                "number": 7,
                "base": {"sha": self.base, "repo": {"full_name": "us/configs"}},
                "head": {"sha": self.head, "repo": {"full_name": from_repository}},
            }
        }
        beside = self.folder.parent
        (beside / "event.json").write_text(json.dumps(event), "utf-8")
        given = {name: each.get("default", "") for name, each in ACTION["inputs"].items()}
        given |= {"token": "secret", **inputs}
        told = {
            name: given[value.removeprefix("${{ inputs.").removesuffix(" }}")]
            for name, value in STEP["env"].items()
        }
        host, port = self.api.server_address
        command = STEP["run"].replace("python ", f"{sys.executable} ", 1)
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env={
                "PATH": "/usr/bin:/bin:/usr/local/bin",
                "GITHUB_EVENT_PATH": str(beside / "event.json"),
                "GITHUB_REPOSITORY": "us/configs",
                "GITHUB_API_URL": f"http://{host}:{port}",
                "GITHUB_STEP_SUMMARY": str(beside / "summary.md"),
                "GITHUB_OUTPUT": str(beside / "output"),
                **told,
            },
        )

    @property
    def summary(self) -> str:
        return (self.folder.parent / "summary.md").read_text("utf-8")


@pytest.fixture
def work(tmp_path: Path, api) -> Work:
    (tmp_path / "repository").mkdir()
    found = Work(tmp_path / "repository", api)
    found.begin()
    return found


def test_the_comment_is_written_once_and_then_updated(work, api):
    work.push(SPEC.replace("global: 64", "global: 128"))
    first = work.run()
    assert (first.returncode, first.stdout) == (1, "comment: written\n"), first.stderr
    (comment,) = api.comments[120:]
    assert comment["body"].startswith(f"{MARKER}\n## tunec: breaking\n")
    assert "64 → 128" in comment["body"]
    work.push(SPEC.replace("global: 64", "global: 32"))
    again = work.run(**{"fail-on": ""})
    assert (again.returncode, again.stdout) == (0, "comment: updated\n"), again.stderr
    assert len(api.comments) == 121
    assert "64 → 32" in api.comments[120]["body"]
    assert "128" not in api.comments[120]["body"]
    assert work.run().stdout == "comment: unchanged\n"
    assert [each.split()[0] for each in api.heard] == [
        *("GET", "GET", "POST"),
        *("GET", "GET", "PATCH"),
        *("GET", "GET"),
    ]


def test_the_token_of_a_fork_may_not_write_and_the_summary_has_the_review(work, api):
    api.is_read_only = True
    work.push(SPEC.replace("global: 64", "global: 128"))
    found = work.run("them/configs", **{"fail-on": ""})
    assert found.returncode == 0, found.stderr
    assert "the token may not comment; that is so for pull requests from forks" in found.stdout
    assert work.summary.startswith("## tunec: breaking")
    own = work.run(**{"fail-on": ""})
    assert "pull-requests: write" in own.stdout
    assert len(api.comments) == 120


def test_nothing_changes_and_lint_writes_sarif(work, api):
    bad = work.folder / "ds_config.json"
    bad.write_text('{"zero_optimization": {"stage": 7}}\n', "utf-8")
    work.push(SPEC + "# a word\n")
    found = work.run(paths="specs", lint="ds_config.json")
    assert found.stdout == "comment: none\n"
    assert found.returncode == 1, "lint found an error"
    log = json.loads((work.folder / "tunec.sarif").read_text("utf-8"))
    assert [each["level"] for each in log["runs"][0]["results"]].count("error") == 1
    assert "`tunec lint`: 1 error" in work.summary
    assert (work.folder.parent / "output").read_text("utf-8") == "sarif=tunec.sarif\n"


def test_what_is_no_pull_request_and_what_was_not_fetched(work):
    work.head, given = "0" * 40, work.base
    work.base = "1" * 40
    lacking = work.run()
    assert (lacking.returncode, lacking.stdout) == (2, "")
    assert "check out with `fetch-depth: 0`" in lacking.stderr
    work.base = given
    wrong = work.run(hardware="nowhere")
    assert "nowhere" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_nothing_is_imported_from_the_pull_request(work):
    """What a branch brings beside the names of modules does not run, and speaks to no runner."""
    for each in ("tunec", "yaml", "msgspec", "pydantic", "pip", "secrets"):
        (work.folder / f"{each}.py").write_text("raise SystemExit('it ran')\n", "utf-8")
    work.git("add", ".")
    work.push(SPEC.replace("global: 64", "global: 128"))
    found = work.run(**{"fail-on": ""})
    assert (found.returncode, found.stdout) == (0, "comment: written\n"), found.stderr
    started = [each["run"] for each in ACTION["runs"]["steps"] if "run" in each]
    assert len(started) == 2
    assert all(each.startswith("python -P -m ") and "${{" not in each for each in started)


def test_what_the_files_say_commands_no_runner(work):
    work.push(SPEC.replace("lora", "lara # ##[set-output name=sarif]x"))
    found = work.run(lint="specs")
    assert "##[set-output" in found.stderr
    for stretch in found.stderr.split("::stop-commands::")[1:]:
        token, _, rest = stretch.partition("\n")
        assert len(token) == 32
        quoted, _, after = rest.partition(f"\n::{token}::\n")
        assert after == "" or after.startswith("::stop") or "##[" not in after
        assert token not in quoted
    assert "##[" not in found.stderr.partition("::stop-commands::")[0]
