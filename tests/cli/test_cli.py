"""The command line as its users meet it: output and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from support.gpu_cli import Answer, migrator, refused

from migrator import __version__
from migrator.core.catalogue import boards
from migrator.core.problem import Charge
from migrator.planning.planners import ready
from migrator.planning.problem_file import example_problem
from migrator.workload.examples import example_text

OK, FAILED = 0, 1

Json = dict[str, Any]

# A window that is planned in no time: a retrains, b changes its size, and there is an overhead.
WINDOW: Json = {
    "version": 1,
    "gpu": "A30-24GB",
    "slot_s": 1.0,
    "slots": 8,
    "charge": "paper",
    "tenants": [
        {
            "name": "a",
            "received": [5, 5, 5, 5, 8, 8, 8, 8],
            "capability": {"1": 10, "2": 18, "4": 30},
            "accuracy_pre": 0.5,
            "accuracy_post": 0.9,
            "retraining_slots": {"1": 4, "2": 3},
            "overhead_s": 0.5,
            "min_gpcs": 1,
        },
        {
            "name": "b",
            "received": [4, 4, 30, 30, 30, 30, 4, 4],
            "capability": {"1": 10, "2": 18},
            "accuracy_pre": 0.8,
            "accuracy_post": 0.8,
            "retraining_slots": None,
            "overhead_s": 0.5,
            "min_gpcs": 1,
        },
    ],
    "initial": None,
}


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """Compile the planners, so that no process below has to."""
    for charge in Charge:
        ready(charge)


def environment() -> dict[str, str]:
    """Ours, less what would colour the help or unbuffer the output; wide, and in UTF-8."""
    unwanted = {"FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "PYTHONUNBUFFERED"}
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return kept | {"COLUMNS": "200", "PYTHONUTF8": "1"}


def run(*arguments: str | Path) -> Answer:
    return migrator(*arguments, COLUMNS="200")


def process(*arguments: str | Path, **how: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, for pipes and streams that are special."""
    command = [sys.executable, "-m", "migrator", *map(str, arguments)]
    settings: dict[str, Any] = {"encoding": "utf-8", "env": environment(), "stderr": PIPE}
    return subprocess.run(command, check=False, **(settings | how))


def answer(*arguments: str | Path, code: int = OK) -> str:
    """What a verb prints that ends with `code` and reports no error."""
    done = run(*arguments)
    assert (done.code, done.err) == (code, ""), done.err
    return done.out


def hand_made(goodput: float, slots: list[Json], **more: object) -> Json:
    """A plan that no planner has made."""
    said = {"goodput": goodput, "upper_bound": goodput, "solver": "hand", "solve_s": 0}
    return {**said, "retrainings": [], "slots": slots, **more}


Write = Callable[[object], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a value, or a text as it is, into a file of its own."""

    def written(value: object) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
        return path

    return written


# plan and check.


def test_plan_prints_what_one_asks_first_and_draws(write: Write, tmp_path: Path) -> None:
    figure = tmp_path / "plan.html"
    text = answer("plan", write(WINDOW), "--figure", figure)
    facts, _, timeline = text.partition("\n\n")
    names = [line.split()[0] for line in facts.splitlines()]
    assert names == ["goodput", "status", "solver", "retraining", "prepared"]
    assert "proven optimal" in facts
    assert "charge paper" in facts
    assert "a: slots " in facts
    title, *rows, last = timeline.splitlines()
    assert "A a, B b" in title
    assert [row[: len("slice 3 |")] for row in rows] == [f"slice {at} |" for at in (3, 2, 1, 0)]
    assert all(len(row) == len("slice 3 ||") + WINDOW["slots"] for row in rows)
    assert {"A", "B", "a"} <= set("".join(rows))
    assert last.split() == ["figure", str(figure)]
    assert "<html" in figure.read_text("utf-8")[:1000].lower()


def test_plan_json_is_what_check_reads(write: Write, tmp_path: Path) -> None:
    problem, figure = write(WINDOW), tmp_path / "plan.png"
    printed = answer("plan", problem, "--json", "--figure", figure)
    plan = json.loads(printed)
    assert printed.count("\n") == 1
    assert plan["goodput"] <= plan["upper_bound"]
    assert plan["preinitialization"]["preparations"]
    (retraining,) = plan["retrainings"]
    assert set(retraining) == {"tenant", "start", "end", "gpcs"}
    assert [set(slot) for slot in plan["slots"]] == [{"instances"}] * WINDOW["slots"]
    assert plan["predicted_goodput"] <= plan["goodput"]
    assert (plan["solver"], plan["gap"], plan["charge"]) == ("exact", 0.0, "paper")
    assert figure.read_bytes().startswith(b"\x89PNG")

    path = write(printed)
    verdict = answer("check", problem, path)
    assert verdict == f"The plan keeps every rule; its goodput is {plan['goodput']:,.1f}.\n"
    assert json.loads(answer("check", problem, path, "--json")) == {
        "valid": True,
        "goodput": plan["goodput"],
        "violations": [],
    }


@pytest.mark.parametrize("solver", ["exact", "ilp"])
def test_charge_and_solver_can_be_chosen(write: Write, solver: str) -> None:
    problem = write(WINDOW)
    options = ("--charge", "survivors", "--solver", solver, "--time-limit", "60", "--json")
    plan = json.loads(answer("plan", problem, *options))
    assert (plan["solver"], plan["charge"]) == (solver, "survivors")
    answer("check", problem, write(plan), "--charge", "survivors")


def test_check_names_what_a_plan_breaks(write: Write) -> None:
    problem = write(WINDOW | {"tenants": [WINDOW["tenants"][1]]})
    slot, moved = (
        {"instances": [{"start": at, "gpcs": 2, "task": "b/inference"}]} for at in (0, 2)
    )
    good = hand_made(0.8 * (4 * 4 + 4 * 18), [*[slot] * 4, *[moved] * 4], upper_bound=100)
    right = write(good)
    answer("check", problem, right)
    # The move in slot 4 is free under `paper` only: half of 18 is served there.
    printed = answer("check", problem, right, "--charge", "survivors", code=FAILED)
    assert printed.startswith("the plan claims goodput 70.4, but its slots give 63.2")
    broken = write(good | {"slots": [*[slot] * 5, {"instances": []}, slot]})
    violations = [
        "the number of slots is 7, but the window has 8",
        "slot 5: b/inference holds no instance of min_gpcs 1 or more",
    ]
    assert answer("check", problem, broken, code=FAILED).splitlines() == violations
    assert json.loads(answer("check", problem, broken, "--json", code=FAILED)) == {
        "valid": False,
        "goodput": None,
        "violations": violations,
    }


def test_check_refuses_a_plan_below_a_floor_that_another_plan_meets(write: Write) -> None:
    a, b = WINDOW["tenants"]
    floors = write(WINDOW | {"tenants": [a, b | {"received": [18] * 8, "floor": 0.9}]})
    plan = json.loads(answer("plan", floors, "--json"))
    assert plan["requests_short"] == {"b": 0.0}
    answer("check", floors, write(plan))
    # b holds 1 GPC of the 2 that it needs: 10 of 0.9 * 18 requests in every slot
    slot = {
        "instances": [
            {"start": 0, "gpcs": 1, "task": "a/inference"},
            {"start": 1, "gpcs": 1, "task": "b/inference"},
        ]
    }
    trains = {"start": 2, "gpcs": 1, "task": "a/retraining"}
    low = hand_made(
        0.5 * 20 + 0.9 * 32 + 0.8 * 80,
        [{"instances": [*slot["instances"], trains]}] * 4 + [slot] * 4,
        penalty=8 * 6.2 * (52 + 8 * 18),
        upper_bound=200,
        retrainings=[{"tenant": "a", "start": 0, "end": 4, "gpcs": 1}],
    )
    said = answer("check", floors, write(low), code=FAILED)
    assert said == (
        "the plan is 49.6 requests short of the floors of 'b', but a plan that is 0.0 short "
        "exists\n"
    )
    unsaid = {name: value for name, value in low.items() if name != "penalty"}
    assert "claims penalty 0.0" in answer("check", floors, write(unsaid), code=FAILED)


def test_plan_and_check_say_what_no_plan_can_meet(write: Write) -> None:
    a, b = WINDOW["tenants"]
    path = write(WINDOW | {"tenants": [a | {"weight": 2}, b | {"floor": 1.0}]})
    printed = answer("plan", path)
    assert "weighted " in printed
    assert "(weights a 2, b 1)" in printed
    assert "b is " in printed
    assert "short of 100.0%" in printed
    plan = write(answer("plan", path, "--json"))
    assert "no plan that was found is less short" in answer("check", path, plan)
    weightless, too_high = [a | {"weight": 0}, b], [a, b | {"floor": 1.1}]
    assert "tenants[0].weight" in refused("plan", write(WINDOW | {"tenants": weightless}))
    assert "tenants[1].floor" in refused("plan", write(WINDOW | {"tenants": too_high}))


def test_check_doubts_what_a_plan_says_about_itself(write: Write) -> None:
    problem = write(WINDOW | {"tenants": [WINDOW["tenants"][1]]})
    slot = {"instances": [{"start": 0, "gpcs": 2, "task": "b/inference"}]}
    goodput = 0.8 * (4 * 4 + 4 * 18)
    plan = hand_made(goodput, [slot] * 8, gap=0.0, status="proven optimal")
    answer("check", problem, write(plan))
    printed = answer("check", problem, write(plan | {"upper_bound": 2 * goodput}), code=FAILED)
    assert [line.split(", but")[0] for line in printed.splitlines()] == [
        "the plan claims gap 0.0",
        "the plan claims status 'proven optimal'",
    ]
    output = answer("check", problem, write(plan), "--search", "5", code=FAILED)
    assert output.startswith(f"the plan claims upper_bound {goodput!r}, but a plan of ")


# The other verbs.


def test_boards() -> None:
    lines = answer("boards").splitlines()
    assert [line.split()[0] for line in lines] == list(boards())
    assert lines[0].endswith("7 GPCs, 8 memory slices, 297 placement sets, 12 configurations")

    shown = answer("boards", "A100-40GB")
    assert shown.startswith(lines[0])
    assert "3g.20gb" in shown
    assert "1g.5gb+me" in shown
    assert "4-3" in shown.splitlines()[-1].split()

    every = json.loads(answer("boards", "--json"))
    assert [board["name"] for board in every] == list(boards())
    (a30,) = json.loads(answer("boards", "A30-24GB", "--json"))
    assert a30 == next(board for board in every if board["name"] == "A30-24GB")
    assert a30["sizes"] == [1, 2, 4]
    assert a30["configurations"] == [[4], [2, 2], [2, 1, 1], [1, 1, 1, 1]]


@pytest.mark.skipif(not Path("/dev/stdin").exists(), reason="a pipe needs a name")
def test_a_problem_can_be_piped_and_a_terminal_without_unicode_gets_the_plan() -> None:
    first, *others = WINDOW["tenants"]
    given = json.dumps(WINDOW | {"tenants": [first | {"name": "\u00e4"}, *others]})
    plain = {**environment(), "PYTHONIOENCODING": "ascii"}
    done = process("plan", "/dev/stdin", input=given, encoding="ascii", env=plain, stdout=PIPE)
    assert done.returncode == 0, done.stderr
    assert "slice 0 |" in done.stdout
    assert "?: slots " in done.stdout


# Bad input.


def test_a_file_that_is_not_there_is_named(tmp_path: Path, write: Write) -> None:
    nowhere = tmp_path / "nowhere.json"
    assert refused("plan", nowhere) == f"{nowhere}: there is no such file; check the path"
    assert refused("check", write(WINDOW), nowhere).startswith(f"{nowhere}: there is no such file")
    assert refused("boards", "A30").startswith("gpu: unknown board 'A30'; use A30-24GB")


def test_a_time_limit_is_positive(write: Write) -> None:
    sentence = refused("plan", write(WINDOW), "--time-limit", "nan")
    assert sentence == "--time-limit: must be a positive number of seconds, e.g. 2"


def test_a_figure_is_html_or_png(write: Write, tmp_path: Path) -> None:
    figure = tmp_path / "plan.svg"
    sentence = refused("plan", write(WINDOW), "--figure", figure)
    assert sentence == "--figure: 'plan.svg' must end in .html or .png"
    assert not figure.exists()
    figure = tmp_path / "missing" / "plan.png"
    assert "--figure" in refused("plan", write(WINDOW), "--figure", figure)


def test_what_only_a_solver_can_refuse_is_a_failure(write: Write) -> None:
    """Its own exit code: nothing is wrong with the problem."""
    long = example_problem() | {"charge": "survivors"}
    options = ("--solver", "ilp", "--time-limit", "0.001")
    done = run("plan", write(long), *options)
    assert done.code == FAILED
    assert "raise --time-limit" in done.refusal


def test_ctrl_c_while_the_command_is_imported_leaves_no_traceback() -> None:
    script = (
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(name, *_):\n"
        "        if name == 'migrator.cli': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting)\n"
        "from migrator.__main__ import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=False, env=environment(), capture_output=True)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


# A reader that has seen enough.


@pytest.mark.parametrize("closed", ["<&- >&-", ">&- 2>&-", "2>&-"])
def test_closed_streams_are_as_if_nobody_read_them(
    closed: str, write: Write, tmp_path: Path
) -> None:
    figure = tmp_path / "plan.html"
    script = f'exec "$0" -m migrator plan "$1" --figure "$2" {closed}'
    command = ["sh", "-c", script, sys.executable, str(write(WINDOW)), str(figure)]
    done = subprocess.run(command, check=False, env=environment(), capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert figure.read_text(encoding="utf-8").rstrip().endswith("</html>")


@pytest.mark.parametrize("arguments", [["boards", "--json"], ["example"]])
def test_a_closed_pipe_leaves_no_traceback(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = process(*arguments, stdout=writer)
    finally:
        os.close(writer)
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_sentence() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = process("example", stdout=full)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the answer could not be written")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", ["validate", "simulate"])
def test_a_path_that_the_system_refuses_is_named(verb: str) -> None:
    path = "x" * 300
    done = process(verb, path)
    assert done.returncode == 2
    (complaint,) = done.stderr.splitlines()
    assert complaint.startswith(f"error: {path}: ")
    assert "File name too long" in complaint


def test_what_is_said_to_a_closed_terminal_is_dropped() -> None:
    script = (
        "import os, pty; from migrator.cli.app import say; master, terminal = pty.openpty();"
        "os.dup2(terminal, 2); os.close(terminal); os.close(master);"
        "say('draining'); print('goes on', flush=True); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, stdout=PIPE, text=True)
    assert done.stdout == "goes on\n"


def test_children_of_a_process_without_streams_have_them() -> None:
    child = "import os; print(os.open(os.devnull, os.O_RDONLY) > 2)"
    script = (
        "import subprocess, sys; from migrator.cli.app import _open_closed_streams;"
        "_open_closed_streams();"
        f"print(subprocess.run([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE).stdout)"
    )
    command = ["sh", "-c", 'exec "$0" -c "$1" <&- 2>&-', sys.executable, script]
    done = subprocess.run(command, check=True, stdout=PIPE, text=True)
    assert "True" in done.stdout


def test_a_current_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    script = 'cd "$1" && rmdir "$1" && exec "$0" -m migrator simulate "$2" --policy own:Policy'
    quickstart = tmp_path / "quickstart.yaml"
    quickstart.write_text(example_text("quickstart"), encoding="utf-8")
    command = ["sh", "-c", script, sys.executable, str(tmp_path / "gone"), str(quickstart)]
    done = subprocess.run(
        command, check=False, env=environment(), capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 2
    assert done.stderr == "error: the current folder is gone; change to another one\n"


def test_version() -> None:
    assert answer("--version") == f"migrator {__version__}\n"
