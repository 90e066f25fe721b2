"""`migrator.plan`, `simulate` and `compare`, called as a script or a notebook calls them."""

from __future__ import annotations

import json
import pickle
import runpy
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import pytest
from support.gpu_cli import migrator as cli

import migrator
import migrator.planning.solve
from migrator.planning.problem_file import example_problem
from migrator.policies.policy import Observation
from migrator.policies.registry import policy as policy_named
from migrator.workload.examples import example_text

ROOT = Path(__file__).parent.parent.parent
OWN = """
def thirds(observation):
    return {tenant.name: 3 for tenant in observation.tenants}

def failing(observation):
    return thirds(observation)["nobody"]

import migrator

@migrator.policy(every_s=50, sight="nothing")
def replanned(observation):
    return thirds(observation)
"""


@pytest.fixture
def quickstart(tmp_path: Path) -> Path:
    path = tmp_path / "quickstart.yaml"
    path.write_text(example_text("quickstart"), encoding="utf-8")
    return path


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_functions.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return "own_functions"


def thirds(observation: Observation) -> dict[str, int]:
    """3 GPCs for everyone."""
    return {tenant.name: 3 for tenant in observation.tenants}


def test_importing_it_is_light() -> None:
    code = (
        "import sys, migrator\n"
        "print(*sorted({'numpy', 'numba', 'pydantic', 'torch', 'typer'} & set(sys.modules)))\n"
        "import inspect, types\n"
        "from migrator import plan, simulate, serve, compare\n"
        "assert isinstance(migrator.plan, types.FunctionType)\n"
        "assert list(inspect.signature(plan).parameters)[0] == 'problem'\n"
        "assert all(map(callable, (plan, simulate, serve, compare)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_a_window_is_planned_from_a_file_or_its_content(tmp_path: Path) -> None:
    problem: Any = example_problem()
    path = tmp_path / "window.json"
    path.write_text(json.dumps(problem), encoding="utf-8")
    made = migrator.plan(path)
    assert made.status == "proven optimal"
    assert migrator.plan(problem).goodput == made.goodput
    frame = made.to_pandas()
    assert set(frame.columns) == {"slot", "start", "gpcs", "tenant", "task"}
    assert frame.slot.nunique() == problem["slots"]
    assert "goodput" in str(made)
    assert made._repr_html_().count("slice ") == 8
    assert made.to_json()["goodput"] == made.goodput
    assert made.draw(tmp_path / "plan.html").exists()
    with pytest.raises(migrator.InputError, match="charge: there is no 'none'"):
        migrator.plan(problem, charge="none")


def test_a_scenario_is_simulated_under_a_function(quickstart: Path, tmp_path: Path) -> None:
    run = migrator.simulate(quickstart, thirds, windows=1)
    assert run.outcome.policy == "thirds"
    assert 0 < run.goodput_share <= run.slo_attainment <= 1
    assert list(run.to_pandas().tenant) == ["photos", "mail"]
    assert "photos" in run._repr_html_()
    assert run.report(tmp_path / "run.html").exists()
    assert migrator.simulate(quickstart, "equal-mig", windows=1).goodput_share > run.goodput_share


def test_policies_of_one_name_are_not_compared(quickstart: Path) -> None:
    def all_with(gpcs: int, name: str | None = None) -> Any:
        @migrator.policy(name=name)
        def same(observation: Any) -> dict[str, int]:
            return {tenant.name: gpcs for tenant in observation.tenants}

        return same

    with pytest.raises(migrator.InputError, match="several policies are called same; name"):
        migrator.compare(quickstart, [all_with(1), all_with(3)], seeds=1, windows=1)
    apart = [all_with(1, "one"), all_with(3, "three")]
    comparison = migrator.compare(quickstart, apart, seeds=1, windows=1)
    assert [row.policy for row in comparison.rows] == ["one", "three"]


def test_policies_are_compared_over_seeds(quickstart: Path) -> None:
    comparison = migrator.compare(quickstart, [thirds, "equal-mig"], seeds=2, windows=1)
    assert comparison.best == "equal-mig"
    assert len(comparison.runs) == 4
    frame = comparison.to_pandas()
    assert set(frame.reference) == {"thirds"}
    assert list(frame.goodput_share_half_width.notna()) == [False, True]
    shares = list(frame.goodput_share)
    assert frame.goodput_share_difference[1] == pytest.approx(shares[1] - shares[0])
    with pytest.raises(migrator.InputError, match=r"package\.module:NAME, or use processes=1"):
        migrator.compare(quickstart, [thirds], processes=2)


def test_an_exception_of_a_policy_shows_its_own_frames(own: str, quickstart: Path) -> None:
    with pytest.raises(KeyError, match="nobody") as caught:
        migrator.simulate(quickstart, f"{own}:failing", windows=1)
    names = [summary.name for summary in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1] == "failing"
    assert not {"decide", "decide_on", "windows_of"} & set(names)


def test_a_policy_that_holds_nothing_is_warned_about_once(quickstart: Path) -> None:
    with pytest.warns(migrator.PolicyWarning, match="holds nothing for the inference of mail") as w:
        run = migrator.simulate(quickstart, lambda seen: {seen.tenants[0].name: 3}, windows=2)
    assert len(w) == 1
    assert run.outcome.tenants["mail"].goodput == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        migrator.simulate(quickstart, thirds, windows=1)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"photos": 7, "mail": 1}, r"asks for photos/inference \[7\], mail/inference \[1\]"),
        ({"photos": 5}, "has no instance of that size; use 1, 2, 3, 4 or 7 GPCs"),
        ({"nobody": 1}, "use TENANT/inference or TENANT/retraining with photos or mail"),
        ({"photos": -1}, "give GPCs such as 3"),
        (None, "returned NoneType; return the GPCs of each task"),
    ],
)
def test_what_is_no_layout_is_refused(answer: Any, said: str, quickstart: Path) -> None:
    with pytest.raises(migrator.InputError, match=said):
        migrator.simulate(quickstart, lambda _: answer, windows=1)


def test_a_function_is_named_by_its_path_and_sent_to_processes(own: str) -> None:
    made = pickle.loads(pickle.dumps(policy_named(f"{own}:replanned")))
    assert (made.name, made.every_s) == (f"{own}:replanned", 50)
    assert made.summary == ""
    plain = pickle.loads(pickle.dumps(migrator.policy(thirds)))
    assert (plain.name, plain.summary) == ("thirds", "3 GPCs for everyone.")


@pytest.mark.parametrize("verb", ["simulate", "compare"])
def test_the_verbs_say_in_one_sentence_what_a_policy_raised_and_where(
    verb: str, own: str, quickstart: Path
) -> None:
    done = cli(verb, quickstart, "--policy", f"{own}:failing", "--windows", 1)
    assert done.code == 2
    assert "Traceback" not in done.err
    said = "policy: own_functions:failing failed with KeyError: 'nobody' (own_functions.py, line 6)"
    assert done.err.splitlines()[-1] == f"error: {said}; correct it"


def test_without_pandas_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    made = migrator.plan(example_problem())
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(migrator.InputError, match=r"pip install 'migrator-gpu\[pandas\]'"):
        made.to_pandas()


def test_something_else_is_no_policy(quickstart: Path) -> None:
    wrong: Any = 7
    with pytest.raises(migrator.InputError, match="7 is no policy"):
        migrator.simulate(quickstart, wrong)


def test_the_notebook_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(ROOT / "examples" / "notebook.py"))
    assert names["comparison"].best in ("busier_first", "equal-mig")
    assert (tmp_path / "plan.html").exists()


@pytest.mark.parametrize("page", ["python-api.md", "policy-tutorial.md"])
def test_the_code_of_the_pages_runs(
    page: str, quickstart: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks of a page in order, in one namespace. Serving is tested in test_server.py."""
    monkeypatch.chdir(quickstart.parent)
    problem = json.dumps(example_problem())
    (quickstart.parent / "window.yaml").write_text(problem, encoding="utf-8")
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks = [part.partition("```")[0] for part in text.split("```python\n")[1:]]
    names: dict[str, Any] = {"__name__": "page"}
    assert len(blocks) >= 3
    for block in blocks:
        if "migrator.serve(" in block:
            compile(block, page, "exec")
        elif "# fails" in block:
            with pytest.raises(ZeroDivisionError):
                exec(block, names)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", migrator.PolicyWarning)
                exec(block, names)
