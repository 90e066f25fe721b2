"""Command line of the fake machine: `python -m migrator.gpu.fake_nvml FOLDER board A100-40GB`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from migrator.core.errors import MigratorError
from migrator.gpu.fake_nvml.machine import FakeNvml, FaultKind

EPILOG = """\
example:
  export MIGRATOR_FAKE_NVML=/tmp/fake
  python -m migrator.gpu.fake_nvml /tmp/fake board A100-40GB H200-141GB
  migrator gpu show --driver mig --gpu 1
  python -m migrator.gpu.fake_nvml /tmp/fake foreign 4 3g.20gb
  python -m migrator.gpu.fake_nvml /tmp/fake hold 4 --pid $$
  python -m migrator.gpu.fake_nvml /tmp/fake fault transient-destroy --count 2
  migrator gpu apply layout.yaml --driver mig
  python -m migrator.gpu.fake_nvml /tmp/fake show
  python -m migrator.gpu.fake_nvml /tmp/fake reboot

MIGRATOR_FAKE_NVML=FOLDER:BOARD,BOARD begins a machine with these boards by itself.
"""

Action = Callable[[FakeNvml, argparse.Namespace], object]


def main(words: list[str] | None = None) -> int:
    """Run a command and print the resulting state of the fake machine."""
    options = _parser().parse_args(words)
    try:
        if options.verb == "board":
            FakeNvml(options.folder, options.names, mig=not options.mig_off)
        fake = FakeNvml(options.folder)
        options.action(fake, options)
    except MigratorError as error:
        print(f"fake_nvml: {error}", file=sys.stderr)
        return 2
    print(_describe(fake))
    return 0


def _describe(fake: FakeNvml) -> str:
    state = fake.store.now()
    lines = [f"boot {state.boot_id}"]
    for index, gpu in enumerate(state.gpus):
        lines.append(f"GPU {index}: {gpu.board}, MIG {'on' if gpu.mig else 'off'}, {gpu.uuid}")
        for each in fake.instances(index):
            half = "" if each.uuid else ", no compute instance"
            held = "".join(f", held by {holder}" for holder in each.holders)
            lines.append(f"  {each.place} (GPU instance {each.number}{half}){held}")
    for fault in state.faults:
        often = "until `mend`" if fault.left is None else f"{fault.left} times"
        lines.append(f"fault {fault.kind}: {often}, after {fault.after} calls")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m migrator.gpu.fake_nvml",
        description="A machine with simulated GPUs, for `migrator gpu --driver mig`.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="folder with the state of the fake machine")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def add(name: str, about: str, action: Action, epilog: str = "") -> argparse.ArgumentParser:
        verb = verbs.add_parser(
            name,
            help=about,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        verb.set_defaults(action=action)
        return verb

    board = add("board", "begin a machine with these boards", lambda _fake, _given: None)
    board.add_argument("names", nargs="+", metavar="BOARD", help="as `migrator boards` lists them")
    board.add_argument("--mig-off", action="store_true", help="with MIG mode off")
    add("show", "print instances, processes and pending faults", lambda _fake, _given: None)
    add(
        "reboot",
        "remove instances and processes; only Ampere GPUs keep MIG mode",
        lambda fake, _: fake.reboot(),
    )
    mig = add("mig", "switch MIG mode", lambda fake, given: fake.mig(given.mode == "on", given.gpu))
    mig.add_argument("mode", choices=["on", "off"])
    foreign = add(
        "foreign",
        "create an instance as another program",
        lambda fake, given: fake.foreign(
            given.start, given.profile, given.gpu, whole=not given.half
        ),
    )
    foreign.add_argument("start", type=int)
    foreign.add_argument("profile")
    foreign.add_argument("--half", action="store_true", help="without compute instance")
    remove = add(
        "remove",
        "destroy an instance as another program",
        lambda fake, given: fake.remove(given.start, given.gpu),
    )
    remove.add_argument("start", type=int)
    hold = add(
        "hold",
        "let a process use an instance, or the whole GPU",
        lambda fake, given: fake.hold(given.start, given.pid, given.gpu),
    )
    hold.add_argument("start", type=int, nargs="?", help="where the instance starts")
    hold.add_argument("--pid", type=int, required=True)
    release = add(
        "release",
        "end the process; without --pid, all",
        lambda fake, given: fake.release(given.pid, given.gpu),
    )
    release.add_argument("--pid", type=int)
    for each in (mig, foreign, remove, hold, release):
        each.add_argument("--gpu", type=int, default=0)
    fault = add(
        "fault",
        "let calls fail",
        lambda fake, given: fake.fault(
            given.kind,
            None if given.always else given.count,
            after=given.after,
            seconds=given.seconds,
        ),
        "kinds:\n" + "\n".join(f"  {kind:<23} {kind.about}" for kind in FaultKind),
    )
    fault.add_argument("kind", choices=list(FaultKind), metavar="KIND")
    fault.add_argument("--count", type=int, default=1, help="number of failing calls (1)")
    fault.add_argument("--always", action="store_true", help="until `mend`")
    fault.add_argument("--after", type=int, default=0, help="after this many successful calls (0)")
    fault.add_argument("--seconds", type=float, default=0.0, help="duration of the call (0)")
    add("mend", "remove all faults", lambda fake, _: fake.mend())
    return parser


if __name__ == "__main__":
    sys.exit(main())
